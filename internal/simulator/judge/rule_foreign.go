package judge

import (
	"net/http"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// judgeStrange: what the simulator knew at once nobody may ever see.
func (c *checker) checkStrange() {
	for _, f := range c.byKind[history.Strange] {
		c.look(foreign)
		c.must(false, foreign, "tenant %d saw what nobody may: %s", f.Tenant, f.Note)
	}
}

// shows are the facts that show something of a job to a tenant.
var exposures = map[history.Kind]string{
	history.Submitted: "an answer to a submission", history.Looked: "a poll", history.ListedJob: "a list", history.ToldReport: "a report",
	history.ToldDelivery: "a list of deliveries", history.Streamed: "a stream", history.Received: "a delivery", history.StoredDeliver: "a stored delivery",
	history.StoredJob: "a row", history.StoredEvent: "a stored event",
}

// judgeOwners: all that is shown of a job is shown to the one whose job it is.
func (c *checker) checkOwners() {
	ours := c.tenant >= 0
	if !ours && !c.run.complete(Rows) && !c.run.complete(Lists) {
		return // whose job it is was never said
	}
	for i := range c.facts {
		f := &c.facts[i]
		how, shown := exposures[f.Kind]
		if source, ok := sourceOf[f.Kind]; ok && !c.run.complete(source) {
			continue
		}
		if !shown || f.Kind == history.Looked && (f.Told == nil || f.Told.State == "") || f.Kind == history.ToldReport && f.Report == nil {
			if a := f.Action; f.Kind == history.Acted && a != nil && ours && f.Tenant != c.tenant {
				c.look(foreign)
				c.must(a.Status < 200 || a.Status > 299, foreign, "tenant %d could %s the job of tenant %d", f.Tenant, a.Verb, c.tenant)
			}
			continue
		}
		if f.Event != nil && ofNoJob(plainName(f.Event.Name)) || f.Delivery != nil && ofNoJob(f.Delivery.EventName) {
			continue
		}
		c.look(foreign)
		if !ours {
			c.must(false, foreign, "%s of tenant %d shows a job that nobody asked for", how, f.Tenant)
			return
		}
		c.must(f.Tenant == c.tenant, foreign, "%s of tenant %d shows the job of tenant %d", how, f.Tenant, c.tenant)
		if w := c.run.webhook(f); w != nil {
			c.must(w.Tenant == c.tenant, foreign, "%s goes to a webhook of tenant %d, the job is of tenant %d", how, w.Tenant, c.tenant)
		}
	}
}

// judgeIntruders: to a tenant who asks for another's job, it does not exist. That
// it existed once (410) is not told to him either.
func (c *checker) checkIntruders() {
	for _, f := range c.byKind[history.Intruded] {
		a := f.Action
		if a == nil || f.Tenant == c.tenant || a.Status == 0 || a.Status == http.StatusTooManyRequests || a.Status >= 500 {
			continue
		}
		c.look(foreign)
		c.must(a.Status == http.StatusNotFound, foreign, "tenant %d asked for the job of tenant %d (%s) and was answered %d %s", f.Tenant, c.tenant, a.Verb, a.Status, a.Code)
	}
}

// webhook is the subscription that a fact's delivery goes to, nil for a callback
// and for one that the simulator does not know.
func (run *RunContext) webhook(f *history.Fact) *Webhook {
	if f.Delivery == nil || f.Delivery.Webhook == "" {
		return nil
	}
	for i := range run.Webhooks {
		if run.Webhooks[i].ID == f.Delivery.Webhook {
			return &run.Webhooks[i]
		}
	}
	return nil
}
