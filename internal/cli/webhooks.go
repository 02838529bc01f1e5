package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
)

var (
	webhookView = output.NewView("WEBHOOK:webhook_id, ENABLED:enabled:state, URL:url, EVENTS:events, FAILURES:consecutive_failures, " +
		"AGE:created_at:age, DISABLED:disabled_reason.detail:wide, DESCRIPTION:description:wide")
	deliveryView = output.NewView("DELIVERY:delivery_id, STATE:state:state, EVENT:event_name, JOB:job_id, ATTEMPTS:attempts, " +
		"STATUS:last_status, AGE:created_at:age, NEXT:next_attempt_at:age:wide, ERROR:last_error.detail")
	replayView = output.NewView("QUEUED:queued")
)

func (s *Shell) webhooks() *cobra.Command {
	return s.forClients(s.group("webhooks", "Receive, list, test and repeat deliveries to webhooks",
		s.listen(),
		s.cmd("list", "List the webhooks of the client", whole(webhookView, "/v1/webhooks")),
		s.cmd("deliveries WEBHOOK", "List past and pending deliveries, newest first",
			list(deliveryView, "/v1/webhooks/%s/deliveries", 50,
				param{"state", "state", "", "only deliveries in this `state`: PENDING, DELIVERED or FAILED"},
				param{"event", "event_name", "", "only deliveries of events with this `name`"})),
		s.cmd("test WEBHOOK", "Send a webhook.test event to a webhook", byID(deliveryView, (*client.Client).TestWebhook)),
		s.cmd("redeliver WEBHOOK [DELIVERY...]", "Send deliveries again, whether they failed or succeeded", redeliver),
		s.cmd("replay WEBHOOK --since TIME", "Send all events since a time to a webhook, including events it never received", replay),
		s.cmd("delete WEBHOOK", "Delete a webhook", deleteByID((*client.Client).DeleteWebhook))))
}

func redeliver(f *pflag.FlagSet) run {
	since := f.String("since", "", "send again all deliveries that failed since this `time`: RFC 3339, or how long ago, as in 2h")
	return using(func(c *call, api *client.Client) error {
		if (*since == "") == (len(c.args) == 1) {
			return command.Usagef("name deliveries, or pass --since (forgerun webhooks redeliver --help)")
		}
		if *since != "" {
			return c.resend(*since, api.RedeliverSince)
		}
		var all []any
		for _, id := range c.args[1:] {
			delivery, err := api.Redeliver(c, c.args[0], id)
			if err != nil {
				return err
			}
			all = append(all, delivery)
		}
		return c.List(deliveryView, all)
	})(f)
}

func replay(f *pflag.FlagSet) run {
	since := f.String("since", "", "send the events since this `time`: RFC 3339, or how long ago, as in 2h")
	return using(func(c *call, api *client.Client) error {
		if *since == "" {
			return command.Usagef("--since is required (forgerun webhooks replay --help)")
		}
		return c.resend(*since, api.Replay)
	})(f)
}

// resend asks the service to repeat deliveries since a given time. Each request handles one page.
func (c *call) resend(
	since string, queue func(context.Context, string, time.Time, string, ...client.Option) (*client.Replay, error),
) error {
	from, err := parseAge(since, time.Now())
	if err != nil {
		return command.Usagef("--since: %w", err)
	}
	total := client.Replay{}
	for cursor := ""; ; {
		part, err := queue(c, c.args[0], from, cursor)
		if err != nil {
			return err
		}
		total.Queued += part.Queued
		if cursor = part.NextCursor; cursor == "" {
			return c.One(replayView, total)
		}
	}
}
