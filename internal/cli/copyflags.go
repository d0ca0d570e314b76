package cli

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
)

// copyFlags are the flags of how closures get to the hosts.
type copyFlags struct {
	compress     string
	substitute   bool
	noSubstitute bool
	timeout      time.Duration
	via          viaFlags

	compression closure.Compression // of compress, once checked
}

func (f *copyFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.compress, "compress", closure.DefaultCompression.String(), "how what is sent is packed, `MODE`: zstd, zstd:LEVEL or none")
	flags.BoolVar(&f.substitute, "substitute-on-destination", true, "let hosts fetch from their own substituters what these have")
	flags.BoolVar(&f.noSubstitute, "no-substitute", false, "send everything that is missing from here")
	flags.DurationVar(&f.timeout, "copy-timeout", closure.DefaultTimeout, "how long the copy of one closure may take")
	f.via.add(flags)
}

func (f *copyFlags) check() error {
	if f.timeout <= 0 {
		return durationError("copy-timeout", f.timeout)
	}
	c, err := closure.ParseCompression(f.compress)
	if err != nil {
		return usageError{fmt.Errorf("--compress %w", err)}
	}
	f.compression = c
	return f.via.check()
}

// engine is what copies, apart from what runs Nix.
func (f *copyFlags) engine(p Process) closure.Engine {
	e := closure.New(f.compression)
	e.Timeout, e.NoSubstitute, e.Via = f.timeout, f.noSubstitute || !f.substitute, f.via.cache(p)
	return e
}
