package fault

import (
	"strconv"
	"time"
)

// RetryAfter is the form of the header Retry-After.
type RetryAfter string

// Forms with a number of seconds use Effect.RetryAfter.
const (
	AsDate     RetryAfter = "date"      // HTTP-date, Effect.RetryAfter seconds ahead
	AsPast     RetryAfter = "past"      // HTTP-date an hour ago
	AsMissing  RetryAfter = "missing"   // no header
	AsGarbage  RetryAfter = "garbage"   // neither number nor date
	AsFraction RetryAfter = "fraction"  // the number plus 0.5, which the grammar forbids
	AsNegative RetryAfter = "negative"  // -1
	AsTwoLines RetryAfter = "two_lines" // two lines: the number, and the number plus 1
)

// RetryAfters lists all forms.
var RetryAfters = []RetryAfter{AsDate, AsPast, AsMissing, AsGarbage, AsFraction, AsNegative, AsTwoLines}

// RetryAfterLines returns the values of Retry-After, one per header line. If `set` is true and there are no lines, the fault removes the
// header. If `set` is false, the fault does not change the header.
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
