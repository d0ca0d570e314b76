package closure

import (
	"fmt"
	"strconv"
	"strings"
)

// Compression is how what is sent is packed.
type Compression struct {
	// Level is zstd's, 1 to 19; 0 means none. The encoder knows four, so several
	// levels do the same.
	Level int
}

// DefaultCompression was chosen by measurement, see docs/benchmarks.md.
var DefaultCompression = Compression{Level: 3}

const maxLevel = 19

// ParseCompression reads "none", "zstd" or "zstd:LEVEL".
func ParseCompression(text string) (Compression, error) {
	kind, level, given := strings.Cut(text, ":")
	switch {
	case text == "none":
		return Compression{}, nil
	case kind == "zstd" && !given:
		return DefaultCompression, nil
	case kind == "zstd":
		n, err := strconv.Atoi(level)
		if err == nil && 1 <= n && n <= maxLevel {
			return Compression{Level: n}, nil
		}
		return Compression{}, fmt.Errorf("%q: want a level from 1 to %d", text, maxLevel)
	}
	return Compression{}, fmt.Errorf("%q: want zstd, zstd:LEVEL or none", text)
}

func (c Compression) String() string {
	if c.Level == 0 {
		return "none"
	}
	return "zstd:" + strconv.Itoa(c.Level)
}
