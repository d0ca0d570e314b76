// Package nearest finds the word that somebody probably meant.
package nearest

import "strings"

// Word returns the candidate that is closest to the word, or "" when none is
// close enough to be a likely slip of the fingers: about one slip in three
// letters, a change of case not counted.
func Word(word string, candidates []string) string {
	word = strings.ToLower(word)
	best, least := "", max(1, len(word)/3)+1
	for _, candidate := range candidates {
		if d := distance(word, strings.ToLower(candidate)); d < least {
			best, least = candidate, d
		}
	}
	return best
}

// Hint is what an error says after naming the word: `; did you mean "x"?`,
// or nothing when no candidate is near.
func Hint(word string, candidates []string) string {
	if near := Word(word, candidates); near != "" {
		return `; did you mean "` + near + `"?`
	}
	return ""
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours between a and b.
func distance(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
