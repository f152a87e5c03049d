package connectors

import "strings"

// Nearest picks the candidate that somebody who wrote name most likely meant: at most two
// edits away, and at most a third of the longer name's length but for case and
// separators. Ties go to the first in order. Empty where there is none.
func Nearest(name string, candidates []string) string {
	best, bestDistance := "", 3
	for _, c := range candidates {
		if fold(c) == fold(name) {
			return c
		}
		limit := min(2, max(len(c), len(name))/3)
		if d := distance(name, c); d <= limit && d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

// fold drops what people mix up: case, and how words are joined.
func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
}

// longestName bounds the work of a comparison; topics have 249 letters at most.
const longestName = 256

// distance is the number of letters to insert, delete, replace or swap with
// their neighbour (optimal string alignment).
func distance(a, b string) int {
	if len(a) > longestName || len(b) > longestName {
		return longestName
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
