package judge

import (
	"slices"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeDeliveries: each event has one delivery to each of its subscribers, made
// when it happened; one that is DELIVERED was answered with 2xx, and none is
// forgotten.
func (c *checker) checkDeliveries() {
	facts, ok := c.knownDeliveries()
	if !ok {
		return
	}
	callback := ""
	if s := c.submission(); s != nil {
		callback = s.Callback
	}
	subscriber := slices.ContainsFunc(c.run.Webhooks, func(w Webhook) bool { return w.Tenant == c.tenant })
	if len(facts) > 0 || callback != "" || subscriber {
		c.look(delivered)
	}
	c.checkToldDeliveries()
	type pair struct{ event, target string }
	made := map[pair]int{}
	events := make(map[string]history.Event, len(c.log))
	for _, e := range c.log {
		events[e.ID] = e
	}
	for _, f := range facts {
		d := f.Delivery
		e, known := events[d.EventID]
		c.must(known || !c.logComplete, delivered, "delivery %s is of event %s, which the job does not have", d.ID, d.EventID)
		c.must(!known || e.Name == d.EventName && e.Seq == d.Seq, delivered, "delivery %s tells event %d (%s) as %d (%s)", d.ID, e.Seq, e.Name, d.Seq, d.EventName)
		target := d.Webhook
		if target == "" {
			target = d.URL
		}
		made[pair{d.EventID, target}]++
		c.must(made[pair{d.EventID, target}] < 2, delivered, "event %d (%s) has two deliveries to %s", d.Seq, d.EventName, target)
		c.checkDelivery(f)
	}
	if !c.logComplete {
		return
	}
	for _, e := range c.log {
		for i := range c.run.Webhooks {
			w := &c.run.Webhooks[i]
			if w.Tenant == c.tenant && subscribed(w.Events, e.Name) && c.run.mustReceive(w, e) {
				c.must(made[pair{e.ID, w.ID}] > 0, delivered, "event %d (%s) has no delivery to webhook %s", e.Seq, e.Name, w.ID)
			}
		}
		if callback != "" && (e.Next != "" || e.Name == nameEmitted) {
			c.must(made[pair{e.ID, callback}] > 0, delivered, "event %d (%s) has no delivery to the callback", e.Seq, e.Name)
		}
	}
}

// judgeToldDeliveries: the API tells each delivery as it is stored.
func (c *checker) checkToldDeliveries() {
	if !c.run.complete(Rows) || len(c.byKind[history.ToldReport]) == 0 {
		return
	}
	stored := map[string]*history.Delivery{}
	for _, f := range c.byKind[history.StoredDeliver] {
		stored[f.Delivery.ID] = f.Delivery
	}
	c.must(len(c.byKind[history.ToldDelivery]) == len(stored), answered, "the API tells %d deliveries of the job, %d are stored", len(c.byKind[history.ToldDelivery]), len(stored))
	for _, f := range c.byKind[history.ToldDelivery] {
		told, s := f.Delivery, stored[f.Delivery.ID]
		moved := told.State == "PENDING" // and may have been settled since
		same := s != nil && told.EventID == s.EventID && told.Seq == s.Seq && told.Webhook == s.Webhook && (moved || told.State == s.State && told.Attempts == s.Attempts)
		c.must(same, answered, "the API tells delivery %s differently than it is stored", told.ID)
	}
}

// knownDeliveries are the job's deliveries as stored, else as told; false when
// nobody says which there are.
func (c *checker) knownDeliveries() ([]*history.Fact, bool) {
	if c.run.complete(Rows) {
		return c.byKind[history.StoredDeliver], c.row != nil
	}
	sampled := len(c.byKind[history.ToldReport]) > 0 // both are asked for together
	return c.byKind[history.ToldDelivery], sampled && c.run.complete(Reports)
}

// bound reports whether the webhook must get the event.
func (run *RunContext) mustReceive(w *Webhook, e history.Event) bool {
	until := w.ExemptSince
	if at, ok := run.Collected.Webhooks[w.ID]; ok && (until.IsZero() || at.Before(until)) {
		until = at
	}
	return until.IsZero() || e.At.Before(until)
}

// judgeDelivery: what the service says became of it agrees with what was sent and
// answered.
func (c *checker) checkDelivery(f *history.Fact) {
	var t deliveryAttempts
	for _, kind := range []history.Kind{history.StoredTry, history.Received} {
		for _, try := range c.byKind[kind] {
			if try.Delivery.ID == f.Delivery.ID {
				t.add(try)
			}
		}
	}
	for _, wrong := range t.check(f, c.run) {
		c.must(false, delivered, "%s", wrong)
	}
}

// judgeReceived: each try of a delivery brings the same bytes, of an event that
// the job has and that has happened, with what is to be told of it.
func (c *checker) checkReceived() {
	first := map[string]*history.Delivery{}
	known := map[string]history.Event{}
	for _, e := range c.log {
		known[e.ID] = e
	}
	made := map[string]bool{}
	for _, f := range c.byKind[history.StoredDeliver] {
		made[f.Delivery.ID] = true
	}
	for _, f := range c.byKind[history.Received] {
		d := f.Delivery
		if ofNoJob(d.EventName) {
			continue
		}
		c.look(received)
		if before := first[d.ID]; before == nil {
			first[d.ID] = d
		} else {
			c.must(d.Body == before.Body && d.EventID == before.EventID, received, "delivery %s came again with other bytes", d.ID)
		}
		c.must(c.shows(d.EventName, known[d.EventID].Attempt, d.JobStatus), received, "delivery %s of %s tells jobStatus %q", d.ID, d.EventName, d.JobStatus)
		c.must((d.EventName == nameEmitted) == (d.Emitted != "") && (d.Emitted == "" || c.emits(d.Emitted)), received,
			"delivery %s of %s brings %q as the client's own event", d.ID, d.EventName, d.Emitted)
		if !c.logComplete {
			continue
		}
		e, ok := known[d.EventID]
		c.must(ok, received, "delivery %s brought event %s, which the job does not have", d.ID, d.EventID)
		c.must(!ok || e.Name == d.EventName && (d.Seq == 0 || d.Seq == e.Seq), received, "delivery %s brought event %d (%s) as %d (%s)", d.ID, e.Seq, e.Name, d.Seq, d.EventName)
		c.must(!ok || !f.At.Add(c.run.slack()).Before(e.At), received, "delivery %s came %s before its event", d.ID, e.At.Sub(f.At))
		c.must(made[d.ID] || !c.run.complete(Rows), received, "delivery %s came, and there is none of that id", d.ID)
	}
}
