package nearest

import "testing"

func TestWord(t *testing.T) {
	candidates := []string{"host", "user", "key", "hostKey", "options"}
	for word, want := range map[string]string{
		"hots":     "host",
		"hostkey":  "hostKey",
		"HOST_KEY": "hostKey",
		"option":   "options",
		"usr":      "user",
		"password": "",
		"":         "",
		"zz":       "",
	} {
		if got := Word(word, candidates); got != want {
			t.Errorf("Word(%q) = %q, want %q", word, got, want)
		}
	}
}

func FuzzWord(f *testing.F) {
	f.Add("host", "hots")
	f.Fuzz(func(t *testing.T, a, b string) {
		if got := Word(a, []string{a}); a != "" && got != a {
			t.Errorf("Word(%q) of itself = %q", a, got)
		}
		if distance(a, b) != distance(b, a) {
			t.Errorf("the distance of %q and %q depends on the order", a, b)
		}
	})
}
