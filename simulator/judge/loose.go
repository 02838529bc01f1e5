package judge

import (
	"fmt"

	"github.com/forgerun/forgerun/simulator/history"
)

// looseDeliveries are those of events that belong to no job, of batches and
// webhooks: a few words for each, since their facts are not kept together.
type looseDeliveries struct {
	byID  map[string]*looseDelivery
	pairs map[string]string // event and webhook to delivery
}

type looseDelivery struct {
	state               string
	attempts, tries     int
	recorded, confirmed int // answers with 2xx
	body                string
	overdue             bool
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
	switch f.Kind {
	case history.StoredDeliver:
		known.state, known.attempts = d.State, d.Attempts
		known.overdue = d.State == "PENDING" && !g.Interrupted && !d.Next.IsZero() && d.Next.Add(g.overdue()).Before(f.At)
		pair := d.EventID + " " + d.Webhook
		if other, twice := l.pairs[pair]; twice {
			return delivered, fmt.Sprintf("event %s (%s) has two deliveries to webhook %s: %s and %s", d.EventID, d.EventName, d.Webhook, other, d.ID)
		}
		l.pairs[pair] = d.ID
	case history.StoredTry:
		known.tries++
		known.recorded += oneIf(good(d.Status))
	case history.Received:
		known.confirmed += oneIf(good(d.Status))
		if known.body != "" && known.body != d.Body {
			return received, fmt.Sprintf("delivery %s came again with other bytes", d.ID)
		}
		known.body = d.Body
	}
	return "", ""
}

// judge tells what is wrong now that all facts are known.
func (l *looseDeliveries) judge(g *Ground, found func(invariant, what string)) {
	for id, d := range l.byID {
		switch {
		case !g.whole(Rows):
		case d.state == "":
			found(received, fmt.Sprintf("delivery %s came, and there is none of that id", id))
		case d.tries != d.attempts:
			found(delivered, fmt.Sprintf("delivery %s counts %d attempts, %d are recorded", id, d.attempts, d.tries))
		case d.recorded > d.confirmed, d.state == "DELIVERED" && d.recorded == 0:
			found(delivered, fmt.Sprintf("delivery %s is %s with %d answers with 2xx on record, the receiver gave %d", id, d.state, d.recorded, d.confirmed))
		case d.overdue:
			found(delivered, fmt.Sprintf("delivery %s is PENDING though it was due", id))
		}
	}
}
