package judge

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Error codes of deliveries that the service ends without another message to the receiver.
const (
	sendDisabled = "WEBHOOK_DISABLED"
	sendDeleted  = "WEBHOOK_DELETED"
)

// checkDeliveries checks that each event has exactly one delivery to each subscribed webhook and to the callback.
func (c *checker) checkDeliveries() {
	facts, ok := c.knownDeliveries()
	if !ok || c.run.complete(Rows) && c.row == nil {
		return
	}
	c.checkShownDeliveries()
	type pair struct{ event, target string }
	made := map[pair]int{}
	for _, f := range facts {
		d := f.Delivery
		e := c.events[d.EventID]
		c.must(!c.logComplete || e.Name == d.EventName && e.Seq == d.Seq, delivered,
			"delivery %s is for event %d (%s), which the job does not have", d.ID, d.Seq, d.EventName)
		to := pair{d.EventID, cmp.Or(d.Webhook, d.URL)}
		made[to]++
		c.must(made[to] < 2, delivered, "event %d (%s) has two deliveries to %s", d.Seq, d.EventName, to.target)
		c.checkDelivery(f)
	}
	if !c.logComplete {
		return
	}
	callback := deref(c.submission).Callback
	for _, e := range c.log {
		for _, w := range c.run.Webhooks {
			changed, ok := c.run.Collected.Webhooks[w.ID]
			if w.Tenant == c.tenant && subscribed(w.Events, e.Name) && (!ok || e.At.Before(changed)) {
				c.must(made[pair{e.ID, w.ID}] > 0, delivered, "event %d (%s) has no delivery to webhook %s", e.Seq, e.Name, w.ID)
			}
		}
		if callback != "" && (e.Next != "" || e.Name == nameEmitted) {
			c.must(made[pair{e.ID, callback}] > 0, delivered, "event %d (%s) has no delivery to the callback", e.Seq, e.Name)
		}
	}
}

// checkShownDeliveries checks that the API shows each delivery with the stored values.
func (c *checker) checkShownDeliveries() {
	if !c.run.complete(Rows) || len(c.byKind[history.APIReport]) == 0 {
		return
	}
	stored := map[string]*history.Delivery{}
	for _, f := range c.byKind[history.StoredDeliver] {
		stored[f.Delivery.ID] = f.Delivery
	}
	shown := c.byKind[history.APIDelivery]
	c.must(len(shown) == len(stored), answered, "the API shows %d deliveries of the job, but %d are stored", len(shown), len(stored))
	for _, f := range shown {
		d, s := f.Delivery, stored[f.Delivery.ID]
		moved := d.State == "PENDING" // when the rows were read, the delivery may have ended
		same := s != nil && d.EventID == s.EventID && d.Seq == s.Seq && d.Webhook == s.Webhook &&
			(moved || d.State == s.State && d.Attempts == s.Attempts)
		c.must(same, answered, "the API shows delivery %s differently than it is stored", d.ID)
	}
}

// knownDeliveries returns the job's deliveries: from the rows or, without rows, from the API. It returns false if neither source was read.
func (c *checker) knownDeliveries() ([]*history.Fact, bool) {
	if c.run.complete(Rows) {
		return c.byKind[history.StoredDeliver], true
	}
	return c.byKind[history.APIDelivery], len(c.byKind[history.APIReport]) > 0 // reports and deliveries are read for the same jobs
}

// checkDelivery checks that a delivery's state agrees with the receiver's responses, and that a pending delivery is not overdue.
func (c *checker) checkDelivery(f *history.Fact) {
	d := f.Delivery
	must := func(ok bool, format string, args ...any) {
		c.must(ok, delivered, "delivery %s "+format, append([]any{d.ID}, args...)...)
	}
	accepted, gone := 0, false
	for _, got := range c.byKind[history.Received] {
		if got.Delivery.ID == d.ID {
			accepted += count(isSuccess(got.Delivery.Status))
			gone = gone || got.Delivery.Status == http.StatusGone
		}
	}
	must(accepted >= d.Accepted, "has %d recorded 2xx responses, but the receiver sent %d", d.Accepted, accepted)
	switch d.State {
	case "DELIVERED":
		must(accepted > 0, "is DELIVERED, but its receiver never returned 2xx")
	case "FAILED":
		must(d.Accepted == 0, "is FAILED, but %d of its attempts got 2xx", d.Accepted)
		must(c.mayHaveFailed(f, gone), "must not be FAILED (%s, last status %d) after %d attempts; the limit is %d (0: unknown)",
			d.Error, d.Status, d.Attempts, c.run.DeliveryTries)
	case "PENDING":
		must(d.Next.After(c.run.serviceTime(c.run.asOf(f).Add(-c.run.DeliveryOverdue))),
			"is PENDING, although it was due at %s, before the end of the run", clock(d.Next))
	default:
		must(false, "is %q", d.State)
	}
}

func isSuccess(status int) bool { return status >= 200 && status < 300 }

// mayHaveFailed reports whether a delivery may be FAILED: all attempts were made, the receiver returned 410, or the webhook was disabled
// or deleted.
func (c *checker) mayHaveFailed(f *history.Fact, gone bool) bool {
	d, tries := f.Delivery, c.run.DeliveryTries
	switch {
	case d.Status == http.StatusGone:
		return gone
	case d.Error == sendDisabled || d.Error == sendDeleted:
		_, changed := c.run.Collected.Webhooks[d.Webhook]
		return d.Webhook != "" && (changed || c.run.webhook(f) == nil || !c.run.complete(Rows))
	case tries == 0:
		return d.Attempts >= 2
	case f.Kind == history.StoredDeliver:
		return d.Attempts-d.Uncounted == tries
	}
	return d.Attempts >= tries
}

// checkReceived checks that each received message describes an event in the job's log. No message may arrive before its event.
func (c *checker) checkReceived() {
	c.checkMessages(c.knownDeliveries())
	for _, f := range c.byKind[history.Received] {
		d := f.Delivery
		e, ok := c.events[d.EventID]
		c.must(c.hasStatus(d.EventName, e.Attempt, d.JobStatus), received,
			"delivery %s of %s has the wrong jobStatus %q", d.ID, d.EventName, d.JobStatus)
		c.must((d.EventName == nameEmitted) == (d.Emitted != "") && (d.Emitted == "" || c.emits(d.Emitted)), received,
			"delivery %s of %s has the wrong event of the client: %q", d.ID, d.EventName, d.Emitted)
		wrong := c.wrongScenario(d.Scenario)
		c.must(wrong == "", received, "delivery %s of %s has %s", d.ID, d.EventName, wrong)
		c.must(wrong != "" || d.WorkKind == d.Scenario.WorkKind, received,
			"delivery %s of %s has the attribute workkind %q, not that of its job", d.ID, d.EventName, d.WorkKind)
		if !c.logComplete {
			continue
		}
		c.must(ok && e.Name == d.EventName && (d.Seq == 0 || d.Seq == e.Seq), received,
			"delivery %s contained event %s as number %d (%s), which the job does not have", d.ID, d.EventID, d.Seq, d.EventName)
		c.must(!ok || !c.run.latest(f.At).Before(e.At), received, "delivery %s arrived %s before its event",
			d.ID, e.At.Sub(c.run.serviceTime(f.At)))
	}
}

// checkDeliveryLogs checks that the API shows the attempts that the receiver saw. It skips runs with faults, because a killed process may
// not have recorded its last attempt.
func (c *checker) checkDeliveryLogs() {
	for _, f := range c.byKind[history.APIDelivery] {
		if f.Delivery.HasLog && !c.run.Chaos && !c.run.Killed {
			c.checkDeliveryLog(f.Delivery)
		}
	}
}

func (c *checker) checkDeliveryLog(d *history.Delivery) {
	must := func(ok bool, format string, args ...any) {
		c.must(ok, delivered, "delivery %s: "+format, append([]any{d.ID}, args...)...)
	}
	var seen []*history.Delivery
	for _, f := range c.byKind[history.Received] {
		if f.Delivery.ID == d.ID {
			seen = append(seen, f.Delivery)
		}
	}
	settled, lost := d.State != "PENDING", 0 // lost: number of attempts without a response; the receiver may not have seen them
	must(!settled || (d.Error != "") == (d.State == "FAILED"), "it is %s, but has last_error %q", d.State, d.Error)
	must(settled != d.SettledAt.IsZero() && settled == d.Next.IsZero(), "it is %s, but has settled_at %s and next_attempt_at %s",
		d.State, clock(d.SettledAt), clock(d.Next))
	must(len(d.Log) == d.Attempts, "it has %d attempts, but %d log entries", d.Attempts, len(d.Log))
	for i, try := range d.Log {
		must(try.Number == i+1, "entry %d of its attempt log has number %d", i+1, try.Number)
		lost += count(try.Status == 0)
	}
	must(len(seen) >= d.Attempts-lost && (len(seen) <= d.Attempts || !settled),
		"the service counts %d tries, but the receiver saw %d", d.Attempts, len(seen))
	accepted := slices.IndexFunc(seen, func(s *history.Delivery) bool { return isSuccess(s.Status) })
	must(accepted < 0 || accepted == len(seen)-1, "it was sent again after the receiver had accepted it")
	if accepted >= 0 && !d.SettledAt.IsZero() && len(c.run.moves()) == 0 { // a moved clock is not checked, because it may have been frozen
		took := d.SettledAt.Sub(d.CreatedAt)
		must(took >= seen[accepted].After, "it was settled %s after its event, before the receiver responded", took)
	}
	if len(seen) != len(d.Log) {
		return
	}
	for i, try := range d.Log {
		got, took := seen[i], time.Duration(try.DurationMS)*time.Millisecond
		must(try.Status != 0 || got.After == 0, "try %d was given up after %s, but the receiver responds after %s: set a longer time limit",
			i+1, took, got.After)
		must(try.Status == got.Status, "try %d is logged with status %d, but the receiver returned %d", i+1, try.Status, got.Status)
		must(try.Status == 0 || took >= got.After-time.Millisecond, "try %d took %s by its log, but the receiver took %s", i+1, took, got.After)
	}
}

// checkClientEvent checks the deliveries of an event that is about a batch or a webhook.
func (c *checker) checkClientEvent() {
	for _, f := range c.byKind[history.StoredDeliver] {
		c.checkDelivery(f)
	}
	c.checkMessages(c.knownDeliveries())
}

// checkMessages checks that each received message belongs to a known delivery, and that all attempts of a delivery send the same
// bytes.
func (c *checker) checkMessages(deliveries []*history.Fact, known bool) {
	first, made := map[string]*history.Delivery{}, map[string]bool{}
	for _, f := range deliveries {
		made[f.Delivery.ID] = true
	}
	for _, f := range c.byKind[history.Received] {
		d := f.Delivery
		before := cmp.Or(first[d.ID], d)
		first[d.ID] = before
		c.must(d.Body == before.Body && d.EventID == before.EventID, received, "delivery %s was repeated with different bytes", d.ID)
		c.must(made[d.ID] || !known, received, "delivery %s arrived, but the service has no record of it", d.ID)
	}
}
