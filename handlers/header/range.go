package header

import (
	"regexp"
	"strconv"
	"strings"
)

// Span is a part of a body, both ends included.
type Span struct{ First, Last int }

// rangeForm is a Range header with one range of bytes.
var rangeForm = regexp.MustCompile(`^(?i:bytes)=[ \t,]*([0-9]*)-([0-9]*)[ \t,]*$`)

// ParseRange reads a Range header (RFC 9110, section 14.1.2) for a body of the
// given size. Several ranges, other units and what is malformed are ignored:
// nil stands for the whole body. It is false for a range outside the body.
func ParseRange(header string, size int) (*Span, bool) {
	match := rangeForm.FindStringSubmatch(header)
	if match == nil || size == 0 {
		return nil, true
	}
	from, to := match[1], match[2]
	first, last := position(from, size), position(to, size)
	switch {
	case from == "" && to == "":
		return nil, true
	case from == "" && last == 0: // the last 0 bytes
		return nil, false
	case from == "":
		return &Span{size - last, size - 1}, true
	case to == "":
		last = size
	case isLess(to, from):
		return nil, true
	}
	if first >= size {
		return nil, false
	}
	return &Span{first, min(last, size-1)}, true
}

// position reads digits as a number, at most limit.
func position(digits string, limit int) int {
	n, err := strconv.Atoi(digits)
	if digits != "" && err != nil { // more digits than an int holds
		return limit
	}
	return min(n, limit)
}

// isLess compares numbers of any length, in digits.
func isLess(a, b string) bool {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return len(a) < len(b) || len(a) == len(b) && a < b
}
