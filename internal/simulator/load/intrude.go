package load

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// intrudeEvery selects every nth ticket, whose job another tenant requests.
const intrudeEvery = 50

// intrude requests the job as another tenant in all possible ways. To that tenant, the job does not exist.
func (e *Engine) intrude(ctx context.Context, t *ticket) {
	other := e.accounts[(t.tenant+1)%len(e.accounts)]
	for _, way := range []struct {
		verb string
		ask  func(*client.Client) error
	}{
		{"get", func(c *client.Client) error { _, err := c.Job(ctx, t.job); return err }},
		{"cancel", func(c *client.Client) error { _, err := c.Cancel(ctx, t.job); return err }},
		{"retry", func(c *client.Client) error { _, err := c.Retry(ctx, t.job); return err }},
		{"report", func(c *client.Client) error { _, err := c.Report(ctx, t.job, 0); return err }},
		{"result", func(c *client.Client) error { _, err := c.Result(ctx, t.job); return err }},
		{"delete", func(c *client.Client) error { return c.Delete(ctx, t.job) }},
		{"events", func(c *client.Client) error {
			for _, err := range c.JobEvents(ctx, t.job) {
				return err
			}
			return nil
		}},
	} {
		sent := time.Now()
		action := answerOf(sent, way.ask(other.quick))
		action.Verb = way.verb
		e.o.History.Add(history.Fact{
			At: action.Answered, Kind: history.Intruded, Tenant: other.Tenant, Ticket: t.number, Job: t.job, Action: &action,
		})
	}
}
