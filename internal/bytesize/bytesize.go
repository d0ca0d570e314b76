// Package bytesize has numbers of bytes for people.
package bytesize

import "fmt"

// Text is a number of bytes with a unit of the SI, so that 1 kB is 1000 B. Sizes stay in
// MB up to 10 GB: what is compared stands in one unit then, and with its decimals.
func Text(n int64) string {
	switch {
	case n >= 10_000_000_000:
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	case n >= 999_950: // what would round to 1000.0 kB
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%d B", n)
}
