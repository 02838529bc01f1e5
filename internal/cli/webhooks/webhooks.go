// Package webhooks has the commands about webhooks of the client whose key is used, and a receiver to try them out with.
package webhooks

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/jobs"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// Command is "webhooks", with those below it.
func Command(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{Use: "webhooks", Short: "Receive, list, test and repeat deliveries to webhooks"}))
	c.AddCommand(listenCommand(s), listCommand(s), deliveriesCommand(s),
		command.New("test WEBHOOK", "Send a webhook.test event to a webhook", session.Show(s, deliveryView, (*client.Client).TestWebhook)),
		redeliverCommand(s), replayCommand(s),
		command.New("delete WEBHOOK", "Delete a webhook", session.Delete(s, (*client.Client).DeleteWebhook)))
	return c
}

var webhookView = output.NewView("webhook_id",
	"WEBHOOK:webhook_id, ENABLED:enabled:state, URL:url, EVENTS:events, FAILURES:consecutive_failures, AGE:created_at:age, "+
		"DISABLED:disabled_reason.detail:wide, DESCRIPTION:description:wide")

var deliveryView = output.NewView("delivery_id",
	"DELIVERY:delivery_id, STATE:state:state, EVENT:event_name, JOB:job_id, ATTEMPTS:attempts, STATUS:last_status, "+
		"AGE:created_at:age, NEXT:next_attempt_at:age:wide, ERROR:last_error.detail")

func listCommand(s *session.Session) *cobra.Command {
	return command.New("list", "List the webhooks of the client",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, _ []string) error {
			all, err := api.Webhooks(ctx)
			if err != nil {
				return err
			}
			return p.List(webhookView, output.Items(all))
		}))
}

func deliveriesCommand(s *session.Session) *cobra.Command {
	filter, limit := client.DeliveryFilter{}, 50
	c := command.New("deliveries WEBHOOK", "List what was or will be delivered, the newest first",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			return session.List(p, deliveryView, api.Deliveries(ctx, args[0], filter), limit)
		}))
	c.Flags().StringVar(&filter.State, "state", "", "only deliveries in this `state`: PENDING, DELIVERED or FAILED")
	c.Flags().StringVar(&filter.EventName, "event", "", "only deliveries of events with this `name`")
	return session.Limit(c, &limit)
}

func redeliverCommand(s *session.Session) *cobra.Command {
	since := ""
	c := command.New("redeliver WEBHOOK [DELIVERY...]", "Send deliveries that failed, or were delivered, again",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			if (since == "") == (len(args) == 1) {
				return command.Usagef("name deliveries, or give --since (forgerun webhooks redeliver --help)")
			}
			if since != "" {
				return again(ctx, p, since, args[0], api.RedeliverSince)
			}
			var all []any
			for _, id := range args[1:] {
				delivery, err := api.Redeliver(ctx, args[0], id)
				if err != nil {
					return err
				}
				all = append(all, delivery)
			}
			return p.List(deliveryView, all)
		}))
	c.Long = "Sends the named deliveries of a webhook again, or with --since all that failed since then."
	c.Flags().StringVar(&since, "since", "", "all that failed since this `time`: RFC 3339, or how long ago, as in 2h")
	return c
}

func replayCommand(s *session.Session) *cobra.Command {
	since := ""
	c := command.New("replay WEBHOOK --since TIME", "Send all events since a time to a webhook, also those it never got",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			if since == "" {
				return command.Usagef("give --since (forgerun webhooks replay --help)")
			}
			return again(ctx, p, since, args[0], api.Replay)
		}))
	c.Flags().StringVar(&since, "since", "", "the `time` from which on: RFC 3339, or how long ago, as in 2h")
	return c
}

var replayView = output.NewView("queued", "QUEUED:queued")

// queue is RedeliverSince or Replay.
type queue func(ctx context.Context, webhook string, from time.Time, cursor string, options ...client.Option) (*client.Replay, error)

// again queues all deliveries since a time, a part with each request.
func again(ctx context.Context, p *output.Printer, since, webhook string, do queue) error {
	from, err := jobs.Ago(since, time.Now())
	if err != nil {
		return command.Usagef("--since: %w", err)
	}
	total := client.Replay{}
	for cursor := ""; ; {
		part, err := do(ctx, webhook, from, cursor)
		if err != nil {
			return err
		}
		total.Queued += part.Queued
		if cursor = part.NextCursor; cursor == "" {
			return p.One(replayView, total)
		}
	}
}
