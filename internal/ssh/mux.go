package ssh

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// The master's control socket, as PROTOCOL.mux of OpenSSH describes it (version 4, since
// OpenSSH 5.4). Of its two ways to a session this is the one that ssh itself takes, where
// the master gets the files. In the other one, proxy mode, a master whose client goes
// away in the middle of a session crashes (seen with 9.2: it keeps a pointer to what it
// has freed).
const (
	muxVersion       uint32 = 4
	muxHello         uint32 = 0x00000001
	muxNewSession    uint32 = 0x10000002
	muxTerminate     uint32 = 0x10000005
	muxOpenForward   uint32 = 0x10000006
	muxCloseForward  uint32 = 0x10000007
	muxOK            uint32 = 0x80000001
	muxDenied        uint32 = 0x80000002
	muxFailure       uint32 = 0x80000003
	muxExit          uint32 = 0x80000004
	muxSessionOpened uint32 = 0x80000006
	muxRemotePort    uint32 = 0x80000007

	muxRemoteForward uint32 = 2
	// muxPath stands in place of a port where there is a Unix socket's path.
	muxPath uint32 = 0xfffffffe
	// muxMax bounds a message from the master; it sends none with more than a sentence.
	muxMax uint32 = 256 << 10
	// noEscape is the escape character of a session that has none.
	noEscape uint32 = 0xffffffff
)

// errRefused is a request that the host, or the master, did not grant.
var errRefused = errors.New("refused")

// muxClient is an end of a control socket, for one request.
type muxClient struct{ *net.UnixConn }

// dialMux opens one. The end of ctx closes it, until stop is called.
func dialMux(ctx context.Context, path string) (m muxClient, stop func() bool, err error) {
	dialled, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		return m, nil, err
	}
	m = muxClient{dialled.(*net.UnixConn)}
	stop = context.AfterFunc(ctx, func() { _ = m.Close() })
	if err := m.greet(); err != nil {
		stop()
		_ = m.Close()
		return m, nil, err
	}
	return m, stop, nil
}

// greet exchanges the versions of the protocol.
func (m muxClient) greet() error {
	if err := m.send(muxHello, muxVersion); err != nil {
		return err
	}
	kind, body, err := m.receive()
	if err != nil {
		return err
	}
	if version, _, ok := number(body); kind != muxHello || !ok || version != muxVersion {
		return fmt.Errorf("ssh's control socket speaks another protocol (%#x, %x)", kind, body)
	}
	return nil
}

// session asks for a session with a command line. The files are its standard input,
// output and error; the master has them open for itself from then on. What they carry
// goes to the host without waiting for an answer to this.
func (m muxClient) session(line string, files [3]*os.File) error {
	// No terminal, X11, agent or subsystem.
	if err := m.send(muxNewSession, requestID, "", 0, 0, 0, 0, noEscape, "", line); err != nil {
		return err
	}
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return err
		}
		var sent error
		// Not by f.Fd, after which reads and writes could not be interrupted.
		if err := raw.Control(func(fd uintptr) {
			_, _, sent = m.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
		}); err != nil {
			return err
		}
		if sent != nil {
			return sent
		}
	}
	return nil
}

// exit reads on until the session has ended and returns its exit status; 255 when none
// was told.
func (m muxClient) exit() (status int, err error) {
	status = notTold
	opened := false
	for {
		kind, body, err := m.receive()
		switch {
		case errors.Is(err, io.EOF) && opened:
			return status, nil
		case err != nil:
			return notTold, err
		}
		switch kind {
		case muxSessionOpened:
			opened = true
		case muxExit:
			// It follows the session's number.
			if _, rest, ok := number(body); ok {
				if n, _, ok := number(rest); ok {
					status = int(n)
				}
			}
		case muxDenied, muxFailure:
			return notTold, refusal(body)
		}
	}
}

// terminate asks the master to end the connection.
func (m muxClient) terminate() error {
	if err := m.send(muxTerminate, requestID); err != nil {
		return err
	}
	_, _, err := m.receive()
	return err
}

// forward asks for a port of the host's loopback that leads to a Unix socket here: for
// any with 0, and returns which one it is.
func (m muxClient) forward(request uint32, port int, socket string) (int, error) {
	if err := m.send(request, requestID, muxRemoteForward, "127.0.0.1", uint32(port), socket, muxPath); err != nil {
		return 0, err
	}
	kind, body, err := m.receive()
	if err != nil {
		return 0, err
	}
	switch kind {
	case muxOK:
		return port, nil
	case muxRemotePort:
		if _, rest, ok := number(body); ok {
			if n, _, ok := number(rest); ok && n > 0 && n < 1<<16 {
				return int(n), nil
			}
		}
	case muxDenied, muxFailure:
		return 0, refusal(body)
	}
	return 0, fmt.Errorf("ssh's control socket answers with %#x and no port", kind)
}

// refusal is what a negative answer says.
func refusal(body []byte) error {
	if _, rest, ok := number(body); ok {
		if n, words, ok := number(rest); ok && int(n) <= len(words) {
			return fmt.Errorf("%w: %s", errRefused, words[:n])
		}
	}
	return errRefused
}

// requestID is the number of the one request on a control socket.
const requestID = 0

// send sends a message of numbers and strings.
func (m muxClient) send(fields ...any) error {
	message := make([]byte, 4)
	for _, field := range fields {
		switch f := field.(type) {
		case int:
			message = binary.BigEndian.AppendUint32(message, uint32(f))
		case uint32:
			message = binary.BigEndian.AppendUint32(message, f)
		case string:
			message = append(binary.BigEndian.AppendUint32(message, uint32(len(f))), f...)
		}
	}
	binary.BigEndian.PutUint32(message, uint32(len(message)-4))
	_, err := m.Write(message)
	return err
}

func (m muxClient) receive() (kind uint32, body []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(m, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 4 || n > muxMax {
		return 0, nil, fmt.Errorf("a message of %d bytes", n)
	}
	message := make([]byte, n)
	if _, err := io.ReadFull(m, message); err != nil {
		return 0, nil, err
	}
	kind, body, _ = number(message)
	return kind, body, nil
}

// number takes a number off the front of a message.
func number(b []byte) (n uint32, rest []byte, ok bool) {
	if len(b) < 4 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint32(b), b[4:], true
}
