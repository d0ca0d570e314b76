package rollout

import (
	"errors"
	"strconv"
	"strings"
)

// Limit is how many nodes may fail: a number, or a part of all nodes in percent. The
// zero value is no limit.
type Limit struct {
	// Given is whether there is a limit.
	Given bool
	// Value is the number of nodes or, with Percent, that of percents, 0 to 100.
	Value   int
	Percent bool
}

// exceeded reports whether more nodes of total have failed than may.
func (l Limit) exceeded(failed, total int) bool {
	switch {
	case !l.Given:
		return false
	case l.Percent:
		return failed*100 > l.Value*total
	}
	return failed > l.Value
}

// Set implements pflag.Value.
func (l *Limit) Set(text string) error {
	number, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(number, 10, 31)
	switch {
	case err != nil || strings.HasPrefix(number, "+"):
		return errors.New("a number of nodes, such as 2, or a part of them, such as 10%, is wanted")
	case percent && n > 100:
		return errors.New("a part is at most 100%")
	}
	*l = Limit{Given: true, Value: int(n), Percent: percent}
	return nil
}

// String implements pflag.Value.
func (l *Limit) String() string {
	switch {
	case !l.Given:
		return ""
	case l.Percent:
		return strconv.Itoa(l.Value) + "%"
	}
	return strconv.Itoa(l.Value)
}

// Type implements pflag.Value.
func (*Limit) Type() string { return "N|P%" }
