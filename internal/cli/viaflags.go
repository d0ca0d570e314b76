package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/nix-community/go-nix/pkg/narinfo/signature"
	"github.com/spf13/pflag"

	"github.com/deploy-ssh/deploy-ssh/internal/closure"
)

// viaFlags say by which binary cache of the operator's closures reach the hosts.
type viaFlags struct {
	to, from, push string
	keys           []string

	via closure.Via // of these, once checked
}

func (f *viaFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.to, "via-cache", "", "push each closure once to the binary cache at `URL` (s3://, https://, http:// or file://) and let the hosts fetch it there; where one can't, it is sent from here")
	flags.StringVar(&f.from, "via-cache-fetch", "", "where hosts fetch what was pushed, if that is another `URL`")
	flags.StringArrayVar(&f.keys, "via-cache-key", nil, "`PUBLICKEY` of that cache, trusted by the hosts for this one command; may be repeated (default: the keys that hosts trust already)")
	flags.StringVar(&f.push, "via-cache-push", "", "`COMMAND` that pushes in place of nix copy and gets the system's store path as its last argument, such as 'attic push prod'")
}

// check reads the flags. No error repeats an address, which may have a password.
func (f *viaFlags) check() error {
	if f.to == "" {
		for flag, given := range map[string]bool{"via-cache-fetch": f.from != "", "via-cache-key": len(f.keys) > 0, "via-cache-push": f.push != ""} {
			if given {
				return usageError{fmt.Errorf("--%s without --via-cache: wanted the cache, too", flag)}
			}
		}
		return nil
	}
	f.via = closure.Via{Push: strings.Fields(f.push), Keys: f.keys}
	var err error
	if f.via.To, err = closure.ParseCacheURL(f.to); err != nil {
		return usageError{fmt.Errorf("--via-cache: %w", err)}
	}
	if f.from != "" {
		if f.via.From, err = closure.ParseCacheURL(f.from); err != nil {
			return usageError{fmt.Errorf("--via-cache-fetch: %w", err)}
		}
	}
	if f.via.To.Local() && f.from == "" {
		return usageError{errors.New("--via-cache file://…: hosts don't see this machine's folders; say with --via-cache-fetch where they find it (the same URL, if all have it mounted)")}
	}
	for _, key := range f.keys {
		if _, err := signature.ParsePublicKey(key); err != nil {
			return usageError{fmt.Errorf("--via-cache-key %q: wanted NAME:BASE64, as nix key convert-secret-to-public prints it: %w", key, err)}
		}
	}
	return nil
}

// cache is the cache of a run; nil when there is none.
func (f *viaFlags) cache(p Process) *closure.Via {
	if f.to == "" {
		return nil
	}
	via := f.via
	via.Store, via.NixConfig = p.getenv("NIX_REMOTE"), p.getenv("NIX_CONFIG")
	return via.Ready()
}
