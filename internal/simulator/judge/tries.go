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
type tries struct {
	recorded, recordedGood int // as stored
	internal               int // of recorded, those that count against no limit
	good, gone             int // what the receiver answered: 2xx, 410
}

func (t *tries) add(f *history.Fact) {
	d := f.Delivery
	switch f.Kind {
	case history.StoredTry:
		t.recorded++
		t.recordedGood += oneIf(good(d.Status))
		t.internal += oneIf(d.Error == sendInternal)
	case history.Received:
		t.good += oneIf(good(d.Status))
		t.gone += oneIf(d.Status == http.StatusGone)
	}
}

// judge holds a delivery as it was at the end against its tries, and tells what
// is wrong.
func (t *tries) judge(f *history.Fact, g *Ground) (wrong []string) {
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
		must(t.mayFail(d, stored, g), "is FAILED (%s, last status %d) after %d attempts, %s", d.Error, d.Status, d.Attempts, g.deliveryTries())
	case "PENDING":
		must(g.Interrupted || d.Next.Add(g.DeliveryOverdue).After(g.asOf(f)), "is PENDING, and was due at %s, before the end", moment(&d.Next))
	default:
		must(false, "is %q", d.State)
	}
	return wrong
}

// mayFail: all tries were made, or the receiver is gone, or its webhook is.
func (t *tries) mayFail(d *history.Delivery, stored bool, g *Ground) bool {
	switch {
	case d.Status == http.StatusGone:
		return t.gone > 0
	case d.Error == sendDisabled || d.Error == sendDeleted:
		return d.Webhook != "" && g.changed(d.Webhook)
	case g.DeliveryTries == 0:
		return d.Attempts >= 2
	case stored:
		return d.Attempts-t.internal == g.DeliveryTries
	}
	return d.Attempts >= g.DeliveryTries
}

func (g *Ground) deliveryTries() string {
	if g.DeliveryTries == 0 {
		return "and the service repeats what fails"
	}
	return fmt.Sprintf("the service makes %d", g.DeliveryTries)
}

func good(status int) bool { return status >= 200 && status < 300 }

func oneIf(ok bool) int {
	if ok {
		return 1
	}
	return 0
}
