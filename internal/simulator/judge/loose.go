package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// looseDeliveries are those of events that belong to no job, of batches and
// webhooks: a few words for each, since their facts are not kept together.
type looseDeliveries struct {
	byID  map[string]*looseDelivery
	pairs map[string]string // event and webhook to delivery
}

type looseDelivery struct {
	tries
	told *history.Fact // as stored; nil for none
	body string
}

func newLooseDeliveries() *looseDeliveries {
	return &looseDeliveries{byID: map[string]*looseDelivery{}, pairs: map[string]string{}}
}

// add takes a fact and tells what is wrong with it at once.
func (l *looseDeliveries) add(f *history.Fact, g *Ground) (invariant, wrong string) {
	d := f.Delivery
	known := l.byID[d.ID]
	if known == nil {
		known = &looseDelivery{}
		l.byID[d.ID] = known
	}
	if w := g.webhook(f); w != nil && w.Tenant != f.Tenant {
		return foreign, fmt.Sprintf("delivery %s of tenant %d goes to a webhook of tenant %d", d.ID, f.Tenant, w.Tenant)
	}
	known.tries.add(f)
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
func (l *looseDeliveries) judge(g *Ground, found func(invariant, what string)) {
	if !g.whole(Rows) {
		return
	}
	for id, d := range l.byID {
		if d.told == nil {
			found(received, fmt.Sprintf("delivery %s came, and there is none of that id", id))
			continue
		}
		for _, wrong := range d.tries.judge(d.told, g) {
			found(delivered, wrong)
		}
	}
}
