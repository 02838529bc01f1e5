package fault

import (
	"fmt"
	"slices"
	"time"
)

// Wrong is an invalid member of a rule.
type Wrong struct{ Pointer, Detail string }

// Error returns the pointer to the member and the violation.
func (w *Wrong) Error() string { return w.Pointer + ": " + w.Detail }

// Check returns the first invalid member of a rule. It returns nil for a valid rule. Operations and error codes of the API are not
// checked.
func (r *Rule) Check() error {
	m, e := &r.Match, &r.Effect
	ranges := []struct {
		is      bool
		pointer string
		detail  string
	}{
		{m.Nth >= 0 && m.Every >= 0 && m.Times >= 0 && m.Times <= MaxTimes, "/match",
			fmt.Sprint("nth, every and times must not be negative, and times must be at most ", MaxTimes)},
		{m.Probability >= 0 && m.Probability <= 1, "/match/probability", "must be greater than 0 and at most 1"},
		{count(m.Nth > 0, m.Every > 0, m.Probability > 0) <= 1, "/match", "use only one of nth, every and probability"},
		{!m.Window() || m.Nth > 0, "/match", "times and for require nth, the first request to which the fault applies"},
		{time.Duration(m.For) <= MaxFor, "/match/for", "must be at most " + MaxFor.String()},
		{*e != Effect{}, "/effect", "the effect must have at least one member"},
		{e.Status == 0 || e.Status >= 400 && e.Status <= 599, "/effect/status", "must be 400 to 599"},
		{e.RetryAfter == nil || *e.RetryAfter >= 0 && *e.RetryAfter <= MaxRetry, "/effect/retry_after",
			fmt.Sprint("must be 0 to ", MaxRetry)},
		{e.Delay >= 0 && time.Duration(e.Delay) <= MaxDelay, "/effect/delay", "must be at most " + MaxDelay.String()},
		{e.RetryAfterAs == "" || slices.Contains(RetryAfters, e.RetryAfterAs), "/effect/retry_after_as",
			fmt.Sprint("must be one of ", RetryAfters)},
		{e.Moved == 0 || slices.Contains(Moves, e.Moved), "/effect/moved", fmt.Sprint("must be one of ", Moves)},
		{!e.OtherHost || e.Moved != 0, "/effect/to_other_host", "requires moved"},
		{e.StreamRetry >= 0 && e.StreamRetry <= int(MaxDelay.Milliseconds()), "/effect/stream_retry",
			fmt.Sprint("must be 1 to ", MaxDelay.Milliseconds())},
		{e.Close == "" || slices.Contains(Closes, e.Close), "/effect/close", fmt.Sprint("must be one of ", Closes)},
		{e.NextRequest == "" || slices.Contains(NextCloses, e.NextRequest), "/effect/next_request",
			fmt.Sprint("must be one of ", NextCloses)},
		{e.Refuse >= 0 && time.Duration(e.Refuse) <= MaxRefuse, "/effect/refuse", "must be at most " + MaxRefuse.String()},
		{e.TLS == "" || slices.Contains(TLSes, e.TLS), "/effect/tls", fmt.Sprint("must be one of ", TLSes)},
		{!e.ResetsNothing(), "/effect/reset", "requires close, next_request: before, cut_after or half_event_after"},
		{!e.NextIsGone(), "/effect/next_request",
			"cannot be combined with close, slow_bytes, refuse, tls or effects on streams: after these, the connection has no next request"},
		{e.SlowBytes >= 0 && e.SlowBytes <= 1<<20, "/effect/slow_bytes", "must be 1 to 1048576"},
		{e.Language == "" || slices.Contains(Languages, e.Language), "/effect/language", fmt.Sprint("must be one of ", Languages)},
		{e.RepeatAfter >= 0 && e.RepeatAfter <= MaxEvents, "/effect/repeat_after_resume", fmt.Sprint("must be at most ", MaxEvents)},
		{m.Operation == Delivery || !e.OfDeliveries(), "/effect",
			"drop, repeat, tamper, rotated_secret and padding apply only to the operation delivery"},
		{m.Operation != Delivery || e.ContentType != "" || e.ForDeliveries(), "/effect",
			"deliveries support only drop, repeat, tamper, rotated_secret, padding, delay, extensions and job_status"},
		{e.Tamper == "" || slices.Contains(Tampers, e.Tamper), "/effect/tamper", fmt.Sprint("must be one of ", Tampers)},
		{e.Repeat <= MaxCopies && e.Padding <= MaxPadding, "/effect",
			fmt.Sprint("allows at most ", MaxCopies, " copies and ", MaxPadding, " bytes of padding")},
	}
	for _, c := range ranges {
		if !c.is {
			return &Wrong{c.pointer, c.detail}
		}
	}
	return nil
}

// ResetsNothing reports whether Reset has no effect, because no other member ends the connection.
func (e *Effect) ResetsNothing() bool {
	ends := e.Close != "" && e.Close != CloseNever && e.Close != CloseStall || e.NextRequest == CloseBefore || e.CutAfter != nil ||
		e.HalfEventAfter != nil
	return e.Reset && !ends
}

// NextIsGone reports whether NextRequest cannot take effect because another member ends the connection first.
func (e *Effect) NextIsGone() bool { return e.NextRequest != "" && (e.Disconnects() || e.OfStreams()) }

func count(all ...bool) (n int) {
	for _, is := range all {
		if is {
			n++
		}
	}
	return n
}
