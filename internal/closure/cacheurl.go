package closure

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// CacheURL is the address of a binary cache as Nix takes it. It may have secrets: a
// user's name and password, or a token among its parameters.
type CacheURL struct {
	text string
	url  *url.URL
}

// schemes are the stores of Nix that are binary caches. One that is reached by SSH is
// none: nothing but the nodes' own identities opens connections to hosts.
var schemes = []string{"http", "https", "s3", "file"}

// pushing are parameters for who writes to a cache, harmless those that are no secret
// and may be shown. Both are of "nix help-stores".
var (
	pushing = []string{"secret-key", "secret-keys", "profile", "compression", "compression-level", "parallel-compression",
		"write-nar-listing", "index-debug-info", "multipart-upload", "multipart-threshold", "multipart-chunk-size", "buffer-size",
		"ls-compression", "log-compression", "narinfo-compression", "local-nar-cache", "storage-class"}
	harmless = append([]string{"endpoint", "region", "scheme", "addressing-style", "priority", "trusted", "want-mass-query", "path-info-cache-size"}, pushing...)
)

// ParseCacheURL reads the address of a binary cache. The error doesn't repeat it.
func ParseCacheURL(text string) (CacheURL, error) {
	// Nix's settings are words on a line, of which # ends the last.
	if i := strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune(`'"#\`, r) }); i >= 0 {
		return CacheURL{}, fmt.Errorf("it has the character %q; write it as %%%02X", text[i], text[i])
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		var parse *url.Error
		if errors.As(err, &parse) {
			err = parse.Err
		}
		return CacheURL{}, fmt.Errorf("it is no address: %w", err)
	case !slices.Contains(schemes, u.Scheme):
		return CacheURL{}, fmt.Errorf("a binary cache is wanted, which begins with %s://", strings.Join(schemes, ":// or "))
	case u.Scheme == "file" && (u.Host != "" || !strings.HasPrefix(u.Path, "/")):
		return CacheURL{}, errors.New("a folder is wanted, file:///PATH")
	case u.Scheme != "file" && u.Host == "":
		return CacheURL{}, fmt.Errorf("a host is wanted behind %s://", u.Scheme)
	}
	return CacheURL{text, u}, nil
}

// IsZero reports whether there is no address.
func (u CacheURL) IsZero() bool { return u.url == nil }

// Local reports whether it is a folder, which other machines can't read unless they
// have the same one mounted.
func (u CacheURL) Local() bool { return u.url != nil && u.url.Scheme == "file" }

// String is the address without what may be a secret.
func (u CacheURL) String() string {
	if u.url == nil {
		return ""
	}
	return (&url.URL{Scheme: u.url.Scheme, Host: u.url.Host, Path: u.url.Path}).String()
}

// Redact takes out of a text what of the address may be a secret.
func (u CacheURL) Redact(text string) string {
	if u.url == nil {
		return text
	}
	var secrets []string
	if user := u.url.User; user != nil {
		password, _ := user.Password()
		secrets = append(secrets, user.String(), password)
		if password == "" {
			secrets = append(secrets, user.Username()) // a token, then
		}
	}
	for _, item := range strings.Split(u.url.RawQuery, "&") {
		name, raw, _ := strings.Cut(item, "=")
		if slices.Contains(harmless, name) {
			continue
		}
		secrets = append(secrets, raw)
		if value, err := url.QueryUnescape(raw); err == nil {
			secrets = append(secrets, value)
		}
	}
	// Nix may show a part that was written with %, without.
	if rest, _, ok := strings.Cut(strings.TrimPrefix(u.text, u.url.Scheme+"://"), "@"); ok && u.url.User != nil {
		_, password, _ := strings.Cut(rest, ":")
		secrets = append(secrets, rest, password)
	}
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, secret := range secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "xxxxx")
		}
	}
	return text
}

// forReaders is the address without what only concerns who writes there.
func (u CacheURL) forReaders() CacheURL {
	var kept []string
	for _, item := range strings.Split(u.url.RawQuery, "&") {
		if name, _, _ := strings.Cut(item, "="); item != "" && !slices.Contains(pushing, name) {
			kept = append(kept, item)
		}
	}
	base, _, _ := strings.Cut(u.text, "?")
	read := *u.url
	read.RawQuery = strings.Join(kept, "&")
	text := base
	if len(kept) > 0 {
		text += "?" + read.RawQuery
	}
	return CacheURL{text, &read}
}

// pushConfig is settings of Nix for a push. Nix packs with xz where nothing is said,
// which is slower than most lines. What the cache has is asked anew, for it may have
// been cleaned since, and what is wrongly thought to be there never gets there.
func (u CacheURL) pushConfig(c Compression) string {
	text := u.text
	if !u.url.Query().Has("compression") {
		kind := "zstd"
		if c.Level == 0 {
			kind = "none"
		}
		separator := "?"
		if strings.Contains(text, "?") {
			separator = "&"
		}
		text += separator + "compression=" + kind
	}
	return strings.Join([]string{
		"store = " + text,
		"narinfo-cache-positive-ttl = 0",
		"narinfo-cache-negative-ttl = 0",
		"connect-timeout = 15",
		"download-attempts = 3",
	}, "\n")
}
