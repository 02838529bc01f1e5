package fault

import (
	"fmt"
	"slices"
	"strings"
)

// Kinds describes each part of the fault in a few words.
func (e *Effect) Kinds() (kinds []string) {
	retryAfter := ""
	if e.RetryAfter != nil || e.RetryAfterAs != "" {
		retryAfter = strings.TrimSuffix(" with Retry-After ("+string(e.RetryAfterAs)+")", " ()")
	}
	closed, reset := "closed", ""
	if e.Reset {
		closed, reset = "reset", ", with a TCP reset"
	}
	add := func(is bool, kind string) {
		if is {
			kinds = append(kinds, kind)
		}
	}
	add(e.Close == CloseBefore, "connection "+closed+" before processing")
	add(e.Close == AfterCommit, "response lost after processing"+reset)
	add(e.Close == CloseMidBody, "response cut in the middle"+reset)
	add(e.Close == CloseNever, "no response on an open connection")
	add(e.Close == CloseStall, "response stalled in the middle")
	add(e.NextRequest == CloseHalf, "connection closed after the response")
	add(e.NextRequest != "" && e.NextRequest != CloseHalf, "idle connection closed"+reset)
	add(e.Refuse > 0, "connections refused")
	add(e.TLS != "", "TLS failure")
	add(e.HTML, "error page of a proxy")
	add(e.Status != 0 && !e.HTML, fmt.Sprint(e.Status, retryAfter))
	add(e.Status == 0 && e.Code != "", e.Code+retryAfter)
	add(e.Moved != 0 && !e.OtherHost, fmt.Sprint(e.Moved))
	add(e.Moved != 0 && e.OtherHost, fmt.Sprint(e.Moved, " to another host"))
	add(retryAfter != "" && !e.Replaces(), "response"+retryAfter)
	add(e.Delay > 0, "delay")
	add(e.SlowBytes > 0, "slow response")
	add(e.CutAfter != nil && e.Close != AfterCommit, "stream cut"+reset)
	add(e.HalfEventAfter != nil, "stream cut within an event"+reset)
	add(e.StallAfter != nil, "stream stalled")
	add(e.RepeatAfter > 0, "events repeated")
	add(e.CommentsOnly, "stream of comments without events")
	add(e.Drop, "delivery not sent")
	add(e.Tamper != "", "forged delivery")
	add(e.Repeat > 0, "delivery repeated")
	add(e.RotatedSecret, "delivery also signed with a second secret")
	add(e.Padding > 0, "large delivery")
	add(e.ExtraEvents, "unknown events")
	add(e.StreamRetry > 0, "stream with a retry time")
	add(e.Rewrites() || e.ContentType != "", "document changed")
	return kinds
}

// Use is the purpose of an operation.
type Use string

// The uses.
const (
	Submissions Use = "submissions"
	Lookups     Use = "reads of jobs"
	Outcomes    Use = "reads of results and reports"
	Streams     Use = "event streams"
	Deliveries  Use = "deliveries"
	Others      Use = "other requests"
	AnyRequest  Use = "requests"
)

// Uses lists all uses in display order.
var Uses = []Use{Submissions, Lookups, Outcomes, Streams, Deliveries, Others, AnyRequest}

// Count says how often a kind of fault happened to requests with one Use.
type Count struct {
	Fault    string `json:"fault"`
	Of       Use    `json:"of"`
	Requests int    `json:"requests"`
	Times    int    `json:"times"`
}

// About returns the faults that the profile always causes, each with the count 0.
func (p Profile) About(api API, seed int64) (about []Count) {
	for _, r := range p.Rules(api, seed) {
		if r.Match.Probability > 0 {
			continue
		}
		of := api.use(r.Match.Operation)
		for _, kind := range r.Effect.Kinds() {
			if one := (Count{Fault: kind, Of: of}); !slices.Contains(about, one) {
				about = append(about, one)
			}
		}
	}
	return about
}
