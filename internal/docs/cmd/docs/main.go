// Command docs writes the generated documentation into the project's folder,
// which is the working directory.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/deploy-ssh/deploy-ssh/internal/docs"
)

func main() {
	if err := write("."); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return fmt.Errorf("this is not the project's folder: %w", err)
	}
	files, err := docs.Generate(os.DirFS(dir))
	if err != nil {
		return err
	}
	// A page whose verb is gone goes with it.
	for _, generated := range docs.Owned {
		old, err := filepath.Glob(filepath.Join(dir, generated))
		if err != nil {
			return err
		}
		for _, path := range old {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	for path, text := range files {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
