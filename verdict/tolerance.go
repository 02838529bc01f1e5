package verdict

import (
	"fmt"
	"slices"

	"github.com/forgerun/forgerun/verdict/fault"
)

// tolerant checks that unknown members, states or types in a response or event do not stop the client. A client that stops at an unknown
// state is not blamed if it could see the job's end elsewhere in the document.
func tolerant(r *record, f *finding) {
	t := &tolerance{record: r, finding: f, polls: r.wouldPollAgain(), retries: r.retriesReads()}
	t.asked = indexed(r, func(x *exchange, add func(string)) {
		if x.Job != "" && !submits(x) {
			add(x.Job)
		}
	})
	for i := range r.exchanges {
		x := &r.exchanges[i]
		if x.Fault == nil || !unfamiliar(x.Fault) || !x.Arrived() || !r.reactionOver(x.End()) {
			continue
		}
		if x.Status >= 400 {
			t.error(x)
			continue
		}
		for _, id := range x.Shown {
			t.shown(x, id)
		}
		if len(x.Final) > 0 && i+1 < len(r.exchanges) {
			f.pass(x, &r.exchanges[i+1], "The client continued.")
		}
	}
	t.deliveries()
}

// unfamiliar reports whether the effect adds members, states or events that the API does not describe. Unfinished and OtherEnd do not
// count, because clients must know the states of the API.
func unfamiliar(e *fault.Effect) bool {
	unknown := *e
	unknown.Unfinished, unknown.OtherEnd = false, false
	return unknown.Rewrites() || unknown.ExtraEvents
}

type tolerance struct {
	*record
	*finding
	polls   func(*exchange) bool
	asked   map[string]group // requests about each job
	retries bool             // whether the client repeats reads that fail with a known error
}

// shown judges whether the client read the job again after x, which showed the job as unfinished.
func (t *tolerance) shown(x *exchange, id string) {
	if x.Role == List && t.runs[id] == nil || t.knew(id, x) {
		return // the job may belong to another client, or the client has already seen the job's end
	}
	y, _ := t.learned(id, x.End())
	if y == nil && submits(x) {
		y = t.asked[id].next(x)
	}
	if y == nil && (x.Job == id || x.Role == List || x.Role == ReadMany) {
		y = t.reads[t.ofKey(x)].next(x)
	}
	if y == nil && (slices.Contains(x.MaybeFinal, id) || t.unclear(x, id)) {
		return
	}
	t.judge(y != nil, x, y, either(y != nil, "The client kept following the job.", "The client never read job "+id+" again."),
		"Ignore unknown members. Treat an unknown state as not final, and continue.")
}

// knew reports whether the client saw the end of the job, its batch or bulk operation before x was complete.
func (t *tolerance) knew(id string, x *exchange) bool {
	of := []string{id}
	if run := t.runs[id]; run != nil {
		of = append(append(of, run.Batch), run.Groups...)
	}
	return slices.ContainsFunc(of, func(id string) bool {
		all := t.ends[id]
		return id != "" && len(all) > 0 && all[0].until().Before(x.End())
	})
}

// unclear reports whether the client may have had a good reason not to read the job after x.
func (t *tolerance) unclear(x *exchange, id string) bool {
	return t.Elsewhere || t.mayHaveShown(id, x.End(), t.Now) || t.unended(id) && !t.polls(x)
}

// error judges what the client does after a temporary error with an unknown problem type. The client must read the job again.
func (t *tolerance) error(x *exchange) {
	if x.Role != Read || x.Job == "" || !failed(x) {
		return
	}
	y, _ := t.learned(x.Job, x.End())
	if y == nil {
		y = t.reads[t.ofKey(x)].next(x)
	}
	if y == nil && (!t.retries || t.unclear(x, x.Job)) {
		return
	}
	t.judge(y != nil, x, y, either(y != nil, "The client read the job again.", "The client never read job "+x.Job+" again."),
		"If you do not know the type of an error, use its HTTP status.")
}

// retriesReads reports whether the client repeated every read that failed with a known error. If no read failed in this way, it returns
// false.
func (r *record) retriesReads() bool {
	repeated, dropped := false, false
	r.each(func(x *exchange) {
		if x.Role == Read && failed(x) && !(x.Fault != nil && unfamiliar(x.Fault)) {
			again := r.reads[r.ofKey(x)].next(x) != nil
			repeated, dropped = repeated || again, dropped || !again
		}
	})
	return repeated && !dropped
}

// deliveries judges how the client answered deliveries with unknown members or states. It skips deliveries without a response.
func (t *tolerance) deliveries() {
	for i := range t.Attempts {
		a := &t.Attempts[i]
		d := t.disturbed[attempt{a.DeliveryID, a.Number}]
		if d.effect == nil || !unfamiliar(d.effect) || d.dropped || a.Status == 0 || a.Unsigned {
			continue
		}
		t.judge(200 <= a.Status && a.Status <= 299, nil, t.attempted(a), fmt.Sprintf("The client returned %d to the delivery.", a.Status),
			"Ignore unknown members and states in a delivery, and return 2xx.")
	}
}
