package report

import (
	"strings"
	"unicode/utf8"
)

// Table lays rows out in columns that are two blanks apart, in lines no longer than width; 0
// means 80. Of a row that is longer, the cells that don't fit go on below, whole: a name that
// is cut can't be used.
func Table(rows [][]string, width int) string {
	const gap, under = "  ", "    "
	if width == 0 {
		width = defaultWidth
	}
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line, pad := row[0], widths[0]-utf8.RuneCountInString(row[0])
		for i, cell := range row[1:] {
			n, beside := utf8.RuneCountInString(cell), line+strings.Repeat(" ", pad)+gap
			if utf8.RuneCountInString(beside)+n > width {
				b.WriteString(strings.TrimRight(line, " ") + "\n")
				beside = under
			}
			line, pad = beside+cell, widths[i+1]-n
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}
