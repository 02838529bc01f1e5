package judge

import (
	"net/http"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeStrange: what the simulator knew at once nobody may ever see.
func (q *inquiry) judgeStrange() {
	for _, f := range q.byKind[history.Strange] {
		q.look(foreign)
		q.must(false, foreign, "tenant %d saw what nobody may: %s", f.Tenant, f.Note)
	}
}

// shows are the facts that show something of a job to a tenant.
var shows = map[history.Kind]string{
	history.Submitted: "an answer to a submission", history.Looked: "a poll", history.ListedJob: "a list", history.ToldReport: "a report",
	history.ToldDelivery: "a list of deliveries", history.Streamed: "a stream", history.Received: "a delivery", history.StoredDeliver: "a stored delivery",
	history.StoredJob: "a row", history.StoredEvent: "a stored event",
}

// judgeOwners: all that is shown of a job is shown to the one whose job it is.
func (q *inquiry) judgeOwners() {
	ours := q.tenant >= 0
	if !ours && !q.ground.whole(Rows) && !q.ground.whole(Lists) {
		return // whose job it is was never said
	}
	for i := range q.facts {
		f := &q.facts[i]
		how, shown := shows[f.Kind]
		if source, ok := sourceOf[f.Kind]; ok && !q.ground.whole(source) {
			continue
		}
		if !shown || f.Kind == history.Looked && (f.Told == nil || f.Told.State == "") || f.Kind == history.ToldReport && f.Report == nil {
			if a := f.Action; f.Kind == history.Acted && a != nil && ours && f.Tenant != q.tenant {
				q.look(foreign)
				q.must(a.Status < 200 || a.Status > 299, foreign, "tenant %d could %s the job of tenant %d", f.Tenant, a.Verb, q.tenant)
			}
			continue
		}
		if f.Event != nil && ofNoJob(plainName(f.Event.Name)) || f.Delivery != nil && ofNoJob(f.Delivery.EventName) {
			continue
		}
		q.look(foreign)
		if !ours {
			q.must(false, foreign, "%s of tenant %d shows a job that nobody asked for", how, f.Tenant)
			return
		}
		q.must(f.Tenant == q.tenant, foreign, "%s of tenant %d shows the job of tenant %d", how, f.Tenant, q.tenant)
		if w := q.ground.webhook(f); w != nil {
			q.must(w.Tenant == q.tenant, foreign, "%s goes to a webhook of tenant %d, the job is of tenant %d", how, w.Tenant, q.tenant)
		}
	}
}

// judgeIntruders: to a tenant who asks for another's job, it does not exist. That
// it existed once (410) is not told to him either.
func (q *inquiry) judgeIntruders() {
	for _, f := range q.byKind[history.Intruded] {
		a := f.Action
		if a == nil || f.Tenant == q.tenant || a.Status == 0 || a.Status == http.StatusTooManyRequests || a.Status >= 500 {
			continue
		}
		q.look(foreign)
		q.must(a.Status == http.StatusNotFound, foreign, "tenant %d asked for the job of tenant %d (%s) and was answered %d %s", f.Tenant, q.tenant, a.Verb, a.Status, a.Code)
	}
}

// webhook is the subscription that a fact's delivery goes to, nil for a callback
// and for one that the simulator does not know.
func (g *Ground) webhook(f *history.Fact) *Webhook {
	if f.Delivery == nil || f.Delivery.Webhook == "" {
		return nil
	}
	for i := range g.Webhooks {
		if g.Webhooks[i].ID == f.Delivery.Webhook {
			return &g.Webhooks[i]
		}
	}
	return nil
}
