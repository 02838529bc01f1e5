package judge

import (
	"github.com/forgerun/forgerun/simulator/history"
)

// judgeDeliveries: each event has one delivery to each of its subscribers, made
// when it happened; one that is DELIVERED was answered with 2xx, and none is
// forgotten.
func (q *inquiry) judgeDeliveries() {
	facts, ok := q.knownDeliveries()
	if !ok {
		return
	}
	q.look(delivered)
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
	callback := ""
	if s := q.submission(); s != nil {
		callback = s.Callback
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
	d := f.Delivery
	tries, confirmed, recorded := 0, 0, 0
	for _, t := range q.byKind[history.StoredTry] {
		if t.Delivery.ID == d.ID {
			tries++
			recorded += oneIf(good(t.Delivery.Status))
		}
	}
	for _, r := range q.byKind[history.Received] {
		confirmed += oneIf(r.Delivery.ID == d.ID && good(r.Delivery.Status))
	}
	stored := f.Kind == history.StoredDeliver
	q.must(!stored || tries == d.Attempts, delivered, "delivery %s counts %d attempts, %d are recorded", d.ID, d.Attempts, tries)
	q.must(confirmed >= recorded, delivered, "delivery %s has %d answers with 2xx on record, the receiver gave %d", d.ID, recorded, confirmed)
	switch d.State {
	case "DELIVERED":
		q.must(confirmed > 0, delivered, "delivery %s is DELIVERED, but its receiver never answered with 2xx", d.ID)
		q.must(!stored || recorded > 0, delivered, "delivery %s is DELIVERED without an attempt that was answered with 2xx", d.ID)
	case "FAILED":
	case "PENDING":
		forgotten := !d.Next.IsZero() && d.Next.Add(q.ground.overdue()).Before(f.At)
		q.must(!forgotten || q.ground.Interrupted, delivered, "delivery %s is PENDING, and was due %s before the end", d.ID, f.At.Sub(d.Next))
	default:
		q.must(false, delivered, "delivery %s is %q", d.ID, d.State)
	}
}

func good(status int) bool { return status >= 200 && status < 300 }

func oneIf(ok bool) int {
	if ok {
		return 1
	}
	return 0
}

// judgeReceived: each try of a delivery brings the same bytes, of an event that
// the job has and that has happened.
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
