package judge

import (
	"slices"
	"time"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// checkDeliveryLogs: where the API showed the tries of a delivery, they are those
// that the receiver saw. A worker that dies may send once more than it records.
func (c *checker) checkDeliveryLogs() {
	told := map[string]bool{}
	for _, f := range c.byKind[history.ToldDelivery] {
		told[f.Delivery.ID] = true
		if f.Delivery.HasLog && !c.run.Chaos && !c.run.Killed {
			c.checkDeliveryLog(f.Delivery)
		}
	}
	if len(c.byKind[history.ToldReport]) == 0 || c.run.complete(Rows) {
		return // which deliveries there are is not known, or by the rows
	}
	for _, f := range c.byKind[history.Received] {
		c.must(told[f.Delivery.ID] || ofNoJob(f.Delivery.EventName), received, "delivery %s came, and there is none of that id", f.Delivery.ID)
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
	settled := d.State != "PENDING"
	must((d.Error != "") == (d.State == "FAILED") || !settled, "it is %s with last_error %q", d.State, d.Error)
	must(settled != d.SettledAt.IsZero() && settled == d.Next.IsZero(), "it is %s with settled_at %s and next_attempt_at %s",
		d.State, clock(&d.SettledAt), clock(&d.Next))
	must(len(d.Log) == d.Attempts, "it has %d attempts and a log of %d", d.Attempts, len(d.Log))
	lost := 0 // tries that may not have come through
	for i, try := range d.Log {
		must(try.Number == i+1, "entry %d of the log of tries has number %d", i+1, try.Number)
		if try.Status == 0 {
			lost++
		}
	}
	must(len(seen) >= d.Attempts-lost && (len(seen) <= d.Attempts || !settled),
		"the service counts %d tries, the receiver saw %d", d.Attempts, len(seen))
	accepted := slices.IndexFunc(seen, func(s *history.Delivery) bool { return s.Status >= 200 && s.Status < 300 })
	must(accepted < 0 || accepted == len(seen)-1, "it was sent again after the receiver had accepted it")
	if accepted >= 0 && !d.SettledAt.IsZero() {
		took := d.SettledAt.Sub(d.CreatedAt)
		must(took >= seen[accepted].After, "it was settled %s after its event, before the receiver answered", took)
	}
	if len(seen) != len(d.Log) {
		return
	}
	for i, try := range d.Log {
		after := seen[i].After
		must(try.Status != 0 || after == 0,
			"try %d was given up after %s, the receiver answers after %s: the service's time limit must be longer",
			i+1, try.Took, after)
		must(try.Status == seen[i].Status, "try %d is logged with status %d, the receiver answered %d", i+1, try.Status, seen[i].Status)
		must(try.Status == 0 || try.Took >= after-time.Millisecond, "try %d is logged with %s, the receiver took %s", i+1, try.Took, after)
	}
}
