package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// looseDeliveries are those of events that belong to no job, of batches and
// webhooks: a few words for each, since their facts are not kept together.
type unattributed struct {
	byID  map[string]*unattributedDelivery
	pairs map[string]string // event and webhook to delivery
}

type unattributedDelivery struct {
	deliveryAttempts
	told *history.Fact // as stored; nil for none
	body string
}

func newUnattributed() *unattributed {
	return &unattributed{byID: map[string]*unattributedDelivery{}, pairs: map[string]string{}}
}

// add takes a fact and tells what is wrong with it at once.
func (l *unattributed) add(f *history.Fact, run *RunContext) (invariant, wrong string) {
	d := f.Delivery
	known := l.byID[d.ID]
	if known == nil {
		known = &unattributedDelivery{}
		l.byID[d.ID] = known
	}
	if w := run.webhook(f); w != nil && w.Tenant != f.Tenant {
		return foreign, fmt.Sprintf("delivery %s of tenant %d goes to a webhook of tenant %d", d.ID, f.Tenant, w.Tenant)
	}
	known.deliveryAttempts.add(f)
	switch f.Kind {
	case history.StoredDeliver:
		told := *f // without those beside it
		known.told = &told
		pair := d.EventID + " " + d.Webhook
		if other, twice := l.pairs[pair]; twice {
			return delivered, fmt.Sprintf("event %s (%s) has two deliveries to webhook %s: %s and %s", d.EventID, d.EventName, d.Webhook, other, d.ID)
		}
		l.pairs[pair] = d.ID
	case history.Received:
		if known.body != "" && known.body != d.Body {
			return received, fmt.Sprintf("delivery %s came again with other bytes", d.ID)
		}
		known.body = d.Body
	}
	return "", ""
}

// judge tells what is wrong now that all facts are known.
func (l *unattributed) check(run *RunContext, found func(invariant, what string)) {
	if !run.complete(Rows) {
		return
	}
	for id, d := range l.byID {
		if d.told == nil {
			found(received, fmt.Sprintf("delivery %s came, and there is none of that id", id))
			continue
		}
		for _, wrong := range d.deliveryAttempts.check(d.told, run) {
			found(delivered, wrong)
		}
	}
}
