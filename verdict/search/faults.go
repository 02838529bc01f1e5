package search

import (
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

var (
	full     = fault.Effect{Status: 503, RetryAfter: new(1)}
	limited  = fault.Effect{Status: 429, RetryAfter: new(1)}
	expired  = fault.Effect{Status: 401}
	reset    = fault.Effect{Close: fault.CloseBefore, Reset: true}
	lost     = fault.Effect{Close: fault.AfterCommit}
	cut      = fault.Effect{Close: fault.CloseMidBody}
	broken   = fault.Effect{Status: 500}
	page     = fault.Effect{HTML: true, Status: 502}
	dead     = fault.Effect{NextRequest: fault.CloseBefore, Reset: true}
	moved    = fault.Effect{Moved: 307}
	never    = fault.Effect{Close: fault.CloseNever}
	stalled  = fault.Effect{Close: fault.CloseStall}
	missing  = fault.Effect{Status: 404}
	behind   = fault.Effect{Unfinished: true}
	unknown  = fault.Effect{Unfinished: true, JobStatus: "PONDERING"}
	extended = fault.Effect{Extensions: true}
	byDate   = fault.Effect{Status: 503, RetryAfter: new(2), RetryAfterAs: fault.AsDate}
	late     = fault.Effect{Delay: fault.Duration(2 * time.Second)}
)

// catalogue lists the faults for each use, simpler ones first.
var catalogue = map[fault.Use][]fault.Effect{
	fault.Submissions: {lost, full, reset, cut, expired, moved, broken, dead, limited, page, byDate, late, stalled, never},
	fault.Lookups: {
		full, reset, cut, missing, behind, expired, moved, broken, unknown, dead, limited, page, byDate, extended, late, stalled, never,
	},
	fault.Outcomes: {full, reset, cut, moved, broken, dead, limited, page, extended, late, stalled, never},
	fault.Streams: {
		{CutAfter: new(1)}, {CutAfter: new(0)}, full, reset, {StallAfter: new(1)}, {HalfEventAfter: new(1)}, expired, {CutAfter: new(2)},
		{RepeatAfter: 1}, {StreamRetry: 1500, CutAfter: new(1)}, {ExtraEvents: true}, limited, late,
	},
	fault.Deliveries: {
		{Repeat: 1}, {Drop: true, Delay: fault.Duration(time.Second)}, {Tamper: fault.TamperSignature}, {Tamper: fault.Tampers[1]},
		{RotatedSecret: true}, {Extensions: true}, {Delay: fault.Duration(time.Second)},
	},
	fault.Others: {full, reset, lost, limited, cut, broken, dead},
}

// cost returns the longest time that a fault may keep a client waiting. The search tries faults with a high cost later.
func cost(e *fault.Effect) time.Duration {
	d := e.Held()
	if e.StallAfter != nil {
		d += fault.MaxDelay
	}
	if e.RetryAfter != nil {
		d += time.Duration(*e.RetryAfter) * time.Second
	}
	return d + time.Second + time.Duration(e.StreamRetry)*time.Millisecond
}

// patientCost is the cost from which a fault counts as slow: the client must wait long.
const patientCost = 10 * time.Second

// mayEndClient reports whether the fault (401 or 404) may make a client give up.
func mayEndClient(e *fault.Effect) bool { return e.Status == 401 || e.Status == 404 }

// causesRequest reports whether the client sends another request because of the fault: a retry, the target of a redirect, or the rest
// of a stream.
func causesRequest(e *fault.Effect) bool {
	return failing(e) || e.NextRequest != "" || e.Moved != 0 || e.CutAfter != nil || e.HalfEventAfter != nil
}
