package bytesize

import "testing"

func TestText(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1: "1 B", 999: "999 B",
		1000: "1.0 kB", 1049: "1.0 kB", 1050: "1.1 kB", 999_949: "999.9 kB",
		999_950: "1.0 MB", 1_000_000: "1.0 MB", 9_999_940_000: "9999.9 MB",
		10_000_000_000: "10.0 GB", 1_234_567_890_123: "1234.6 GB",
	} {
		if got := Text(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
