// Package editdistance says how unlike two names are, for "did you mean"
// hints beside an unknown name.
package editdistance

// Of is the Levenshtein distance of a and b in bytes: how many must be
// inserted, removed or replaced to make one the other.
func Of(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
