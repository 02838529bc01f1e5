package fault

import (
	"strconv"
	"time"
)

// RetryAfter is the form of the header Retry-After.
type RetryAfter string

// The forms. Those with a number use Effect.RetryAfter.
const (
	AsDate     RetryAfter = "date"      // an HTTP-date that many seconds ahead
	AsPast     RetryAfter = "past"      // an HTTP-date of an hour ago
	AsMissing  RetryAfter = "missing"   // no header
	AsGarbage  RetryAfter = "garbage"   // neither number nor date
	AsFraction RetryAfter = "fraction"  // half a second more, which the grammar forbids
	AsNegative RetryAfter = "negative"  // -1
	AsTwoLines RetryAfter = "two_lines" // in two lines, the second with one more
)

// RetryAfters are all forms.
var RetryAfters = []RetryAfter{AsDate, AsPast, AsMissing, AsGarbage, AsFraction, AsNegative, AsTwoLines}

// RetryAfterLines returns the header lines of Retry-After, if the fault sets them.
func (e *Effect) RetryAfterLines(now time.Time) (lines []string, set bool) {
	n := 1
	if e.RetryAfter != nil {
		n = *e.RetryAfter
	}
	switch e.RetryAfterAs {
	case AsDate:
		return []string{now.Add(time.Duration(n) * time.Second).UTC().Format(httpDate)}, true
	case AsPast:
		return []string{now.Add(-time.Hour).UTC().Format(httpDate)}, true
	case AsMissing:
		return nil, true
	case AsGarbage:
		return []string{"soon"}, true
	case AsFraction:
		return []string{strconv.Itoa(n) + ".5"}, true
	case AsNegative:
		return []string{"-1"}, true
	case AsTwoLines:
		return []string{strconv.Itoa(n), strconv.Itoa(n + 1)}, true
	}
	return []string{strconv.Itoa(n)}, e.RetryAfter != nil
}

// httpDate is the format of dates in headers (RFC 9110, section 5.6.7).
const httpDate = "Mon, 02 Jan 2006 15:04:05 GMT"
