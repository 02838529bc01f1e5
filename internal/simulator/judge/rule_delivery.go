package judge

import (
	"slices"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeDeliveries: each event has one delivery to each of its subscribers, made
// when it happened; one that is DELIVERED was answered with 2xx, and none is
// forgotten.
func (q *inquiry) judgeDeliveries() {
	facts, ok := q.knownDeliveries()
	if !ok {
		return
	}
	callback := ""
	if s := q.submission(); s != nil {
		callback = s.Callback
	}
	subscriber := slices.ContainsFunc(q.ground.Webhooks, func(w Webhook) bool { return w.Tenant == q.tenant })
	if len(facts) > 0 || callback != "" || subscriber {
		q.look(delivered)
	}
	q.judgeToldDeliveries()
	type pair struct{ event, target string }
	made := map[pair]int{}
	events := make(map[string]history.Event, len(q.log))
	for _, e := range q.log {
		events[e.ID] = e
	}
	for _, f := range facts {
		d := f.Delivery
		e, known := events[d.EventID]
		q.must(known || !q.whole, delivered, "delivery %s is of event %s, which the job does not have", d.ID, d.EventID)
		q.must(!known || e.Name == d.EventName && e.Seq == d.Seq, delivered, "delivery %s tells event %d (%s) as %d (%s)", d.ID, e.Seq, e.Name, d.Seq, d.EventName)
		target := d.Webhook
		if target == "" {
			target = d.URL
		}
		made[pair{d.EventID, target}]++
		q.must(made[pair{d.EventID, target}] < 2, delivered, "event %d (%s) has two deliveries to %s", d.Seq, d.EventName, target)
		q.judgeDelivery(f)
	}
	if !q.whole {
		return
	}
	for _, e := range q.log {
		for i := range q.ground.Webhooks {
			w := &q.ground.Webhooks[i]
			if w.Tenant == q.tenant && subscribed(w.Events, e.Name) && q.ground.bound(w, e) {
				q.must(made[pair{e.ID, w.ID}] > 0, delivered, "event %d (%s) has no delivery to webhook %s", e.Seq, e.Name, w.ID)
			}
		}
		if callback != "" && (e.Next != "" || e.Name == nameEmitted) {
			q.must(made[pair{e.ID, callback}] > 0, delivered, "event %d (%s) has no delivery to the callback", e.Seq, e.Name)
		}
	}
}

// judgeToldDeliveries: the API tells each delivery as it is stored.
func (q *inquiry) judgeToldDeliveries() {
	if !q.ground.whole(Rows) || len(q.byKind[history.ToldReport]) == 0 {
		return
	}
	stored := map[string]*history.Delivery{}
	for _, f := range q.byKind[history.StoredDeliver] {
		stored[f.Delivery.ID] = f.Delivery
	}
	q.must(len(q.byKind[history.ToldDelivery]) == len(stored), answered, "the API tells %d deliveries of the job, %d are stored", len(q.byKind[history.ToldDelivery]), len(stored))
	for _, f := range q.byKind[history.ToldDelivery] {
		told, s := f.Delivery, stored[f.Delivery.ID]
		moved := told.State == "PENDING" // and may have been settled since
		same := s != nil && told.EventID == s.EventID && told.Seq == s.Seq && told.Webhook == s.Webhook && (moved || told.State == s.State && told.Attempts == s.Attempts)
		q.must(same, answered, "the API tells delivery %s differently than it is stored", told.ID)
	}
}

// knownDeliveries are the job's deliveries as stored, else as told; false when
// nobody says which there are.
func (q *inquiry) knownDeliveries() ([]*history.Fact, bool) {
	if q.ground.whole(Rows) {
		return q.byKind[history.StoredDeliver], q.row != nil
	}
	sampled := len(q.byKind[history.ToldReport]) > 0 // both are asked for together
	return q.byKind[history.ToldDelivery], sampled && q.ground.whole(Reports)
}

// bound reports whether the webhook must get the event.
func (g *Ground) bound(w *Webhook, e history.Event) bool {
	until := w.Loosened
	if at, ok := g.Collected.Webhooks[w.ID]; ok && (until.IsZero() || at.Before(until)) {
		until = at
	}
	return until.IsZero() || e.At.Before(until)
}

// judgeDelivery: what the service says became of it agrees with what was sent and
// answered.
func (q *inquiry) judgeDelivery(f *history.Fact) {
	var t tries
	for _, kind := range []history.Kind{history.StoredTry, history.Received} {
		for _, try := range q.byKind[kind] {
			if try.Delivery.ID == f.Delivery.ID {
				t.add(try)
			}
		}
	}
	for _, wrong := range t.judge(f, q.ground) {
		q.must(false, delivered, "%s", wrong)
	}
}

// judgeReceived: each try of a delivery brings the same bytes, of an event that
// the job has and that has happened, with what is to be told of it.
func (q *inquiry) judgeReceived() {
	first := map[string]*history.Delivery{}
	known := map[string]history.Event{}
	for _, e := range q.log {
		known[e.ID] = e
	}
	made := map[string]bool{}
	for _, f := range q.byKind[history.StoredDeliver] {
		made[f.Delivery.ID] = true
	}
	for _, f := range q.byKind[history.Received] {
		d := f.Delivery
		if ofNoJob(d.EventName) {
			continue
		}
		q.look(received)
		if before := first[d.ID]; before == nil {
			first[d.ID] = d
		} else {
			q.must(d.Body == before.Body && d.EventID == before.EventID, received, "delivery %s came again with other bytes", d.ID)
		}
		q.must(q.shows(d.EventName, known[d.EventID].Attempt, d.JobStatus), received, "delivery %s of %s tells jobStatus %q", d.ID, d.EventName, d.JobStatus)
		q.must((d.EventName == nameEmitted) == (d.Emitted != "") && (d.Emitted == "" || q.emits(d.Emitted)), received,
			"delivery %s of %s brings %q as the client's own event", d.ID, d.EventName, d.Emitted)
		if !q.whole {
			continue
		}
		e, ok := known[d.EventID]
		q.must(ok, received, "delivery %s brought event %s, which the job does not have", d.ID, d.EventID)
		q.must(!ok || e.Name == d.EventName && (d.Seq == 0 || d.Seq == e.Seq), received, "delivery %s brought event %d (%s) as %d (%s)", d.ID, e.Seq, e.Name, d.Seq, d.EventName)
		q.must(!ok || !f.At.Add(q.ground.slack()).Before(e.At), received, "delivery %s came %s before its event", d.ID, e.At.Sub(f.At))
		q.must(made[d.ID] || !q.ground.whole(Rows), received, "delivery %s came, and there is none of that id", d.ID)
	}
}
