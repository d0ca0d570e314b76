package closure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/nix-community/go-nix/pkg/narinfo"
	"github.com/nix-community/go-nix/pkg/narinfo/signature"
	"github.com/nix-community/go-nix/pkg/nixhash"
	"github.com/nix-community/go-nix/pkg/storepath"

	"github.com/deploy-ssh/deploy-ssh/internal/child"
)

// query asks the deployer's store for a closure: every path with its hash, size,
// references and signatures. Where they are fetched from is not filled in.
func (e Engine) query(ctx context.Context, toplevel string) ([]narinfo.NarInfo, error) {
	paths, err := e.pathInfo(ctx, toplevel)
	var failed *child.Error
	if errors.As(err, &failed) && strings.Contains(failed.Stderr, "--json-format") {
		// From 2.34 on Nix wants to be told which form; before it doesn't know the flag.
		paths, err = e.pathInfo(ctx, toplevel, "--json-format", "1")
	}
	return paths, err
}

func (e Engine) pathInfo(ctx context.Context, toplevel string, form ...string) ([]narinfo.NarInfo, error) {
	args := append([]string{"--extra-experimental-features", "nix-command"}, e.options()...)
	args = append(append(append(args, "path-info", "--json"), form...), "--recursive")
	args = append(append(args, installable(toplevel)...), toplevel)
	// Read as it comes: the answer for a large closure is tens of megabytes.
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := e.Runner.Run(ctx, child.Command{Name: "nix", Args: args, Stdout: w, Subject: "nix path-info"})
		_ = w.Close()
		done <- err
	}()
	paths, parseErr := parsePathInfo(r)
	if parseErr == nil {
		_, parseErr = io.Copy(io.Discard, r) // the end of the last line
	}
	_ = r.Close() // lets Nix go when the answer makes no sense
	switch err := <-done; {
	case err != nil && (parseErr == nil || errors.Is(parseErr, io.EOF) || errors.Is(parseErr, io.ErrUnexpectedEOF)):
		return nil, err
	case parseErr != nil:
		return nil, fmt.Errorf("reading the answer of nix path-info: %w", parseErr)
	}
	return paths, nil
}

// installable are arguments that make Nix take a derivation for its file, not for what
// it builds.
func installable(path string) []string {
	if strings.HasSuffix(path, ".drv") {
		return []string{"--derivation"}
	}
	return nil
}

// pathInfo is what Nix tells of a path.
type pathInfo struct {
	Path       string   `json:"path"` // in a list only
	NarHash    string   `json:"narHash"`
	NarSize    uint64   `json:"narSize"`
	References []string `json:"references"`
	Signatures []string `json:"signatures"`
	Deriver    string   `json:"deriver"`
	CA         string   `json:"ca"`
}

// parsePathInfo reads the answer of `nix path-info --json`: a list of objects up to
// Nix 2.18, later an object whose keys are the paths (format 1).
func parsePathInfo(r io.Reader) ([]narinfo.NarInfo, error) {
	d := json.NewDecoder(r)
	start, err := d.Token()
	if err != nil {
		return nil, err
	}
	if start != json.Delim('[') && start != json.Delim('{') {
		return nil, fmt.Errorf("it begins with %v", start)
	}
	paths := []narinfo.NarInfo{}
	for d.More() {
		key := ""
		if start == json.Delim('{') {
			token, err := d.Token()
			if err != nil {
				return nil, err
			}
			key, _ = token.(string)
		}
		var p *pathInfo
		if err := d.Decode(&p); err != nil {
			return nil, err
		}
		if p == nil || p.NarHash == "" {
			return nil, fmt.Errorf("path %s is not valid in the deployer's store", key)
		}
		if key != "" {
			p.Path = key
		}
		info, err := p.narInfo()
		if err != nil {
			return nil, fmt.Errorf("path %q: %w", p.Path, err)
		}
		paths = append(paths, info)
	}
	_, err = d.Token()
	return paths, err
}

func (p *pathInfo) narInfo() (narinfo.NarInfo, error) {
	if err := validPath(p.Path); err != nil {
		return narinfo.NarInfo{}, err
	}
	algorithm := nixhash.SHA256
	hash, err := nixhash.ParseAny(p.NarHash, &algorithm)
	if err != nil {
		return narinfo.NarInfo{}, err
	}
	base32, err := nixhash.NewHashWithEncoding(hash.Algo(), hash.Digest(), nixhash.NixBase32, true)
	if err != nil {
		return narinfo.NarInfo{}, err
	}
	info := narinfo.NarInfo{StorePath: p.Path, NarHash: base32, NarSize: p.NarSize, CA: p.CA}
	for _, reference := range p.References {
		if err := validPath(reference); err != nil {
			return narinfo.NarInfo{}, err
		}
		info.References = append(info.References, path.Base(reference))
	}
	if p.Deriver != "" {
		info.Deriver = path.Base(p.Deriver)
	}
	for _, text := range p.Signatures {
		// A signature of a kind not known here is none that we could hand on.
		if s, err := signature.ParseSignature(text); err == nil {
			info.Signatures = append(info.Signatures, s)
		}
	}
	return info, nil
}

// validPath refuses what is no path in the one store directory that works here.
// It is stricter than [storepath.Validate], which passes over both separators.
func validPath(p string) error {
	if err := storepath.Validate(p); err != nil {
		return err
	}
	if path.Dir(p) != storepath.StoreDir || p[len(storepath.StoreDir)+1+32] != '-' {
		return fmt.Errorf("%q is no store path", p)
	}
	return nil
}

// hashPart is the part of a store path that names it.
func hashPart(storePath string) string {
	hash, _, _ := strings.Cut(path.Base(storePath), "-")
	return hash
}
