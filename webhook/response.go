package webhook

import (
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/forgerun/forgerun/job"
)

// Limits for responses. job.MaxStoredBody limits the stored part of a body.
const (
	maxDrained     = 64 << 10 // bytes; after a longer body, the connection is closed
	maxStoredNames = 64
	maxStoredHead  = 8 << 10 // bytes of names and values
	maxRetryAfter  = 24 * time.Hour
)

// read reads a response and classifies it. It returns an error if the body of a 2xx response cannot be read. For other responses, the
// status decides, and an unreadable body is no error.
func read(r *http.Response, now time.Time) (sent job.Sent, err error) {
	a := job.DeliveryAttempt{Status: r.StatusCode, Error: classifyStatus(r.StatusCode), Header: storedHeader(r.Header)}
	if r.StatusCode >= http.StatusOK { // the body of a 101 response is the open connection and does not end
		a.Body, a.Truncated, err = readBody(r.Body)
		if a.Error != "" {
			err = nil
		} else if err != nil {
			a.Error = classify(err, true)
		}
	}
	return job.Sent{Attempt: a, RetryAfter: retryAfter(r.Header.Get("Retry-After"), now)}, err
}

// readBody returns the first job.MaxStoredBody bytes. It reads on, up to maxDrained bytes, so that the connection can be reused.
func readBody(body io.Reader) (kept []byte, truncated bool, err error) {
	kept, err = io.ReadAll(io.LimitReader(body, job.MaxStoredBody))
	if err != nil || len(kept) < job.MaxStoredBody {
		return kept, false, err
	}
	n, err := io.Copy(io.Discard, io.LimitReader(body, maxDrained-job.MaxStoredBody))
	return kept, n > 0, err
}

// storedHeader returns the header without cookies and control characters, cut to the limits.
func storedHeader(h http.Header) map[string][]string {
	stored := map[string][]string{}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name == "Set-Cookie" {
			continue
		}
		values := make([]string, 0, len(h[name]))
		for _, v := range h[name] {
			v = plainText(v)
			if size+len(name)+len(v) > maxStoredHead {
				continue
			}
			size += len(name) + len(v)
			values = append(values, v)
		}
		if len(values) > 0 && len(stored) < maxStoredNames {
			stored[plainText(name)] = values
		}
	}
	return stored
}

func plainText(s string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return unicode.ReplacementChar
		}
		return c
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// retryAfter parses a Retry-After header: seconds or a date (RFC 9110, section 10.2.3). It returns at most 24 h, or 0 for a missing or
// invalid value.
func retryAfter(value string, now time.Time) time.Duration {
	const maxSeconds = int(maxRetryAfter / time.Second)
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.Atoi(value)
		if err != nil { // out of range
			seconds = maxSeconds
		}
		return time.Duration(min(seconds, maxSeconds)) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
