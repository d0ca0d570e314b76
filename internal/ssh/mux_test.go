package ssh

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sourcegraph/conc"
)

// message is one of the mux protocol, made of numbers and strings.
func message(fields ...any) string {
	var body []byte
	for _, field := range fields {
		switch f := field.(type) {
		case int:
			body = binary.BigEndian.AppendUint32(body, uint32(f))
		case uint32:
			body = binary.BigEndian.AppendUint32(body, f)
		case string:
			body = append(binary.BigEndian.AppendUint32(body, uint32(len(f))), f...)
		}
	}
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + string(body)
}

// Whatever a master answers, or doesn't, is an error that says so.
func TestMuxAnswers(t *testing.T) {
	hello := message(muxHello, muxVersion)
	for _, tt := range []struct {
		name, says string
		stays      bool   // whether the master keeps the socket open then
		want       string // of the error; empty for none
	}{
		{"nothing", "", false, "EOF"},
		{"half a message", hello[:6], false, "unexpected EOF"},
		{"another version", message(muxHello, 3), false, "another protocol"},
		{"another message", message(muxOK, muxVersion), false, "another protocol"},
		{"an empty message", message(), false, "a message of 0 bytes"},
		{"no end", "\xff\xff\xff\xff", false, "a message of 4294967295 bytes"},
		{"silence", hello, true, "enough"},
		{"silence from the beginning", "", true, "enough"},
		{"gone before the session", hello, false, "EOF"},
		{"refused", hello + message(muxFailure, 0, "no"), false, "refused: no"},
		{"refused without a word", hello + message(muxDenied), false, "refused"},
		{"a word that is cut", hello + message(muxFailure, 0, 99), false, "refused"},
		{"an end without a status", hello + message(muxSessionOpened, 0, 1), false, ""},
		{"a status", hello + message(muxSessionOpened, 0, 1) + message(muxExit, 1, 7), false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ctl")
			listener, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, fmt.Errorf("enough"))
			defer cancel()
			var work conc.WaitGroup
			defer work.Wait()
			defer listener.Close()
			work.Go(func() {
				line, err := listener.Accept()
				if err != nil {
					return
				}
				defer line.Close()
				_, _ = io.WriteString(line, tt.says)
				if tt.stays {
					<-ctx.Done()
				} else {
					// What was sent must not make of the end a reset.
					_ = line.(*net.UnixConn).CloseWrite()
					_, _ = io.Copy(io.Discard, line)
				}
			})
			conn := &Conn{client: &Client{}, controlPath: path}
			conn.master.Store(&master{done: make(chan struct{})}) // which lives on
			_, err = conn.ride(ctx, session{line: "true", stdin: text(""), stdout: io.Discard, stderr: io.Discard})
			if err == nil != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) && !strings.Contains(fmt.Sprint(context.Cause(ctx)), tt.want) {
				t.Errorf("said %v, want %q", err, tt.want)
			}
		})
	}
}
