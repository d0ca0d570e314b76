package rig

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"
)

// lay writes what makes each host itself, before its first boot.
func (r *Rig) lay(config Config) error {
	key, public, err := newKey()
	if err != nil {
		return err
	}
	r.DeployerKey = public + " root@" + deployerName

	var hosts strings.Builder
	hosts.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	for _, h := range r.Hosts() {
		fmt.Fprintf(&hosts, "%s %s\n%s %s\n", h.Addr, h.Name, h.Addr6, h.Name)
	}

	targets := append([]Target{{Name: deployerName}}, config.Targets...)
	for i, h := range r.Hosts() {
		t := targets[i]
		hostKey, hostPublic, err := newKey()
		if err != nil {
			return err
		}
		h.HostKey = hostPublic
		files := map[string]File{
			// Without an id of its own a host takes its first boot for an installation's.
			"/etc/machine-id":               {Content: machineID() + "\n", Mode: 0o444},
			"/etc/hostname":                 {Content: h.Name + "\n"},
			"/etc/hosts":                    {Content: hosts.String()},
			"/etc/ssh/ssh_host_ed25519_key": {Content: hostKey, Mode: 0o600},
			"/etc/ssh/sshd_config.d/10-host.conf": {
				// A Match block in the given lines ends with the file.
				Content: t.SSHConfig + "\n",
			},
			"/etc/ssh/sshd_config.d/20-port.conf": {Content: fmt.Sprintf("Port %d\nHostKey /etc/ssh/ssh_host_ed25519_key\n", h.SSHPort)},
		}
		files["/etc/ssh/ssh_host_ed25519_key.pub"] = File{Content: hostPublic + "\n"}
		if !t.Container {
			// Detection reads that one file. It is written by pid 1 at boot, and only then.
			files["/usr/lib/tmpfiles.d/rig.conf"] = File{Content: "r! /run/systemd/container\n"}
		}
		if h == r.Deployer {
			files["/root/.ssh/id_ed25519"] = File{Content: key, Mode: 0o600}
			files["/root/.ssh/id_ed25519.pub"] = File{Content: r.DeployerKey + "\n"}
		} else {
			files["/etc/NIXOS"] = File{}
			files["/root/.ssh/authorized_keys"] = File{Content: r.DeployerKey + "\n", Mode: 0o600}
		}
		for name, file := range t.Files {
			if !path.IsAbs(name) {
				return fmt.Errorf("host %s: file %s: want an absolute path", h.Name, name)
			}
			files[path.Clean(name)] = file
		}
		if err := h.lay(files, t.LoginShell); err != nil {
			return fmt.Errorf("laying the files of host %s: %w", h.Name, err)
		}
	}
	return r.save(config.Suite)
}

func (h *Host) lay(files map[string]File, shell string) error {
	root, err := os.OpenRoot(h.rig.keeper.root(h.rig.dir, "hosts", h.Name, "root"))
	if err != nil {
		return err
	}
	defer root.Close()
	// OpenSSH of some releases comes with this folder.
	if err := root.MkdirAll("root/.ssh", 0o700); err != nil {
		return err
	}
	for name, file := range files {
		if err := layFile(root, strings.TrimPrefix(name, "/"), file); err != nil {
			return err
		}
	}
	if shell == "" {
		return nil
	}
	passwd, err := root.ReadFile("etc/passwd")
	if err != nil {
		return err
	}
	first, rest, _ := strings.Cut(string(passwd), "\n")
	if !strings.HasPrefix(first, "root:") {
		return fmt.Errorf("/etc/passwd begins with %q, not with root", first)
	}
	first = first[:strings.LastIndexByte(first, ':')+1] + shell
	return root.WriteFile("etc/passwd", []byte(first+"\n"+rest), 0o644)
}

func layFile(root *os.Root, name string, file File) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	if file.Link != "" {
		return root.Symlink(file.Link, name)
	}
	mode := file.Mode
	if mode == 0 {
		mode = 0o644
	}
	if err := root.WriteFile(name, []byte(file.Content), mode); err != nil {
		return err
	}
	return root.Chmod(name, mode&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky))
}

// newKey makes an ed25519 key: the private half as OpenSSH's file, the public one as a line.
func newKey() (private, public string, err error) {
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", "", err
	}
	block, err := ssh.MarshalPrivateKey(priv, "")
	if err != nil {
		return "", "", err
	}
	sshPub, err := ssh.NewPublicKey(pub)
	if err != nil {
		return "", "", err
	}
	return string(pem.EncodeToMemory(block)), strings.TrimSpace(string(ssh.MarshalAuthorizedKey(sshPub))), nil
}

func machineID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
