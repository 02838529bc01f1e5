package judge

import (
	"fmt"
	"net/http"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// strange is the violation in what the simulator itself knew that nobody may see.
func strange(f *history.Fact) string {
	return fmt.Sprintf("tenant %d saw what nobody may: %s", f.Tenant, f.Note)
}

// exposures are the facts that show something of a job to a tenant.
var exposures = map[history.Kind]string{
	history.Submitted: "an answer to a submission", history.Looked: "a poll", history.ListedJob: "a list", history.ToldReport: "a report",
	history.ToldDelivery: "a list of deliveries", history.Streamed: "a stream", history.Received: "a delivery",
	history.StoredDeliver: "a stored delivery", history.StoredJob: "a row", history.StoredEvent: "a stored event",
}

// exposure says how a fact shows something of a job; "": it does not.
func exposure(f *history.Fact) string {
	switch {
	case f.Kind == history.Looked && (f.Told == nil || f.Told.State == ""), f.Kind == history.ToldReport && f.Report == nil,
		f.Event != nil && ofNoJob(plainName(f.Event.Name)), f.Delivery != nil && ofNoJob(f.Delivery.EventName):
		return ""
	}
	return exposures[f.Kind]
}

// checkOwners: a job is shown to its tenant only, and nobody else can act on it.
func (c *checker) checkOwners() {
	owned := c.tenant >= 0
	if !owned && !c.run.complete(Rows) && !c.run.complete(Lists) {
		return // the owner is unknown
	}
	for i := range c.facts {
		f := &c.facts[i]
		if source, ok := sourceOf[f.Kind]; ok && !c.run.complete(source) {
			continue
		}
		if a := f.Action; f.Kind == history.Acted && a != nil && owned && f.Tenant != c.tenant {
			c.look(foreign)
			c.must(a.Status < 200 || a.Status > 299, foreign, "tenant %d could %s the job of tenant %d", f.Tenant, a.Verb, c.tenant)
		}
		how := exposure(f)
		if how == "" {
			continue
		}
		c.look(foreign)
		if !owned {
			c.must(false, foreign, "%s of tenant %d shows a job that nobody asked for", how, f.Tenant)
			return
		}
		c.must(f.Tenant == c.tenant, foreign, "%s of tenant %d shows the job of tenant %d", how, f.Tenant, c.tenant)
		if w := c.run.webhook(f); w != nil {
			c.must(w.Tenant == c.tenant, foreign, "%s goes to a webhook of tenant %d, the job is of tenant %d", how, w.Tenant, c.tenant)
		}
	}
}

// checkOutsiders: to a tenant who asks for another's job, it does not exist, and
// never did (410).
func (c *checker) checkOutsiders() {
	for _, f := range c.byKind[history.Strange] {
		c.look(foreign)
		c.must(false, foreign, "%s", strange(f))
	}
	for _, f := range c.byKind[history.Intruded] {
		a := f.Action
		if a == nil || f.Tenant == c.tenant || a.Status == 0 || a.Status == http.StatusTooManyRequests || a.Status >= 500 {
			continue
		}
		c.look(foreign)
		c.must(a.Status == http.StatusNotFound, foreign, "tenant %d asked for the job of tenant %d (%s) and was answered %d %s",
			f.Tenant, c.tenant, a.Verb, a.Status, a.Code)
	}
}
