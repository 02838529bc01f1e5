package judge

import (
	"fmt"
	"net/http"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Codes of errors of deliveries that are no answer of a receiver.
const (
	sendInternal = "INTERNAL" // on the service's side
	sendDisabled = "WEBHOOK_DISABLED"
	sendDeleted  = "WEBHOOK_DELETED"
)

// tries counts what is known of the tries of a delivery.
type deliveryAttempts struct {
	recorded, recordedGood int // as stored
	internal               int // of recorded, those that count against no limit
	good, gone             int // what the receiver answered: 2xx, 410
}

func (t *deliveryAttempts) add(f *history.Fact) {
	d := f.Delivery
	switch f.Kind {
	case history.StoredTry:
		t.recorded++
		t.recordedGood += oneIf(is2xx(d.Status))
		t.internal += oneIf(d.Error == sendInternal)
	case history.Received:
		t.good += oneIf(is2xx(d.Status))
		t.gone += oneIf(d.Status == http.StatusGone)
	}
}

// judge holds a delivery as it was at the end against its tries, and tells what
// is wrong.
func (t *deliveryAttempts) check(f *history.Fact, run *RunContext) (wrong []string) {
	d, stored := f.Delivery, f.Kind == history.StoredDeliver
	must := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf("delivery %s ", d.ID)+fmt.Sprintf(format, args...))
		}
	}
	must(!stored || t.recorded == d.Attempts, "counts %d attempts, %d are recorded", d.Attempts, t.recorded)
	must(t.good >= t.recordedGood, "has %d answers with 2xx on record, the receiver gave %d", t.recordedGood, t.good)
	switch d.State {
	case "DELIVERED":
		must(t.good > 0, "is DELIVERED, but its receiver never answered with 2xx")
		must(!stored || t.recordedGood > 0, "is DELIVERED without an attempt that was answered with 2xx")
	case "FAILED":
		must(t.recordedGood == 0, "is FAILED, and %d of its attempts were answered with 2xx", t.recordedGood)
		must(t.mayFail(d, stored, run), "is FAILED (%s, last status %d) after %d attempts, %s", d.Error, d.Status, d.Attempts, run.deliveryTries())
	case "PENDING":
		must(run.Interrupted || d.Next.After(run.asOf(f)), "is PENDING, and was due at %s, before the end", moment(&d.Next))
	default:
		must(false, "is %q", d.State)
	}
	return wrong
}

// mayFail: all tries were made, or the receiver is gone, or its webhook is.
func (t *deliveryAttempts) mayFail(d *history.Delivery, stored bool, run *RunContext) bool {
	switch {
	case d.Status == http.StatusGone:
		return t.gone > 0
	case d.Error == sendDisabled || d.Error == sendDeleted:
		return d.Webhook != "" && run.changed(d.Webhook)
	case run.DeliveryTries == 0:
		return d.Attempts >= 2
	case stored:
		return d.Attempts-t.internal == run.DeliveryTries
	}
	return d.Attempts >= run.DeliveryTries
}

func (run *RunContext) deliveryTries() string {
	if run.DeliveryTries == 0 {
		return "and the service repeats what fails"
	}
	return fmt.Sprintf("the service makes %d", run.DeliveryTries)
}

func is2xx(status int) bool { return status >= 200 && status < 300 }

func oneIf(ok bool) int {
	if ok {
		return 1
	}
	return 0
}
