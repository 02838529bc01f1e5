package header

import (
	"regexp"
	"strconv"
	"strings"
)

// Span is a part of a body. Both ends are inclusive.
type Span struct{ First, Last int }

// rangeForm matches a Range header with one range of bytes.
var rangeForm = regexp.MustCompile(`^(?i:bytes)=[ \t,]*([0-9]*)-([0-9]*)[ \t,]*$`)

// ParseRange parses a Range header (RFC 9110, section 14.1.2) for a body of the given size. It returns nil and true if the header is to be
// ignored: several ranges, another unit or a malformed value. It returns false for a range outside the body.
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
	case from == "" && last == 0: // bytes=-0 asks for the last 0 bytes
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

func position(digits string, limit int) int {
	n, err := strconv.Atoi(digits)
	if digits != "" && err != nil { // the number may overflow an int
		return limit
	}
	return min(n, limit)
}

func isLess(a, b string) bool {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return len(a) < len(b) || len(a) == len(b) && a < b
}
