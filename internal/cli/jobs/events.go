package jobs

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
)

var eventView = output.NewView("event_id",
	"SEQ:seq, TIME:timestamp, EVENT:event_name, FROM:prev_state, TO:next_state:state, ATTEMPT:attempt, "+
		"EVENT ID:event_id:wide, DATA:data:wide")

// streamed is a message of a stream as it is printed: id resumes after it.
type streamed struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Data any    `json:"data"`
}

var streamView = output.View{ID: "id"}

func logsCommand(s *session.Session) *cobra.Command {
	follow := false
	c := &cobra.Command{
		Use: "events JOB", Aliases: []string{"logs"}, Short: "The event log of a job", Args: command.Exactly(1),
		RunE: s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			if follow {
				return stream(ctx, api, p, client.StreamOptions{JobID: args[0]})
			}
			return log(p, api.JobEvents(ctx, args[0]), 0)
		}),
	}
	c.Flags().BoolVar(&follow, "follow", false, "go on until the job has ended")
	return c
}

// EventsCommand is "events".
func EventsCommand(s *session.Session) *cobra.Command {
	follow, after, limit := false, "", 0
	c := s.ForClients(command.New("events", "The events of all jobs, batches and webhooks of the client",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, _ []string) error {
			switch {
			case follow:
				return stream(ctx, api, p, client.StreamOptions{LastEventID: after})
			case after != "":
				return command.Usagef("--after is for --follow")
			}
			return log(p, api.Events(ctx), limit)
		})))
	c.Long = "Lists the events of all jobs, batches and webhooks of the client, or with --follow shows them as they happen, from now on\n" +
		"or from the event --after. Interrupted connections are resumed: nothing is missed or shown twice."
	c.Flags().BoolVar(&follow, "follow", false, "show events as they happen")
	c.Flags().StringVar(&after, "after", "", "with --follow: go on after the event with this `id`")
	c.Flags().IntVar(&limit, "limit", 100, "without --follow: the latest so many; 0: all")
	return c
}

// log prints the last limit events of a list, 0 for all: for people one on a line.
func log(p *output.Printer, entries iter.Seq2[client.Event, error], limit int) error {
	var events []client.Event
	for event, err := range entries {
		if err != nil {
			return err
		}
		if events = append(events, event); limit > 0 && len(events) >= 2*limit {
			events = slices.Clone(events[len(events)-limit:])
		}
	}
	if limit > 0 {
		events = events[max(0, len(events)-limit):]
	}
	if !p.Form.IsTable() {
		return p.List(eventView, output.Items(events))
	}
	for _, event := range events {
		if err := p.Each(eventView, event, func(value any) string { return lineOf(p.Style, event.EventName, value) }); err != nil {
			return err
		}
	}
	return nil
}

// stream prints messages as they come.
func stream(ctx context.Context, api *client.Client, p *output.Printer, o client.StreamOptions) error {
	for message, err := range api.Stream(ctx, o) {
		if err != nil {
			return err
		}
		if err := show(p, message); err != nil {
			return err
		}
	}
	return nil
}

// show prints one message.
func show(p *output.Printer, m client.Message) error {
	return p.Each(streamView, streamed{ID: m.ID, Name: m.Name, Data: m.Data}, func(value any) string {
		data := output.At(value, "data")
		if object, ok := data.(map[string]any); ok && object["timestamp"] == nil && object["completedAt"] == nil {
			object["timestamp"] = m.ReceivedAt.UTC().Format(time.RFC3339Nano)
		}
		return lineOf(p.Style, m.Name, data)
	})
}

// lineOf is one event for people: when, what, of which job, from which state to which.
func lineOf(style term.Style, name string, data any) string {
	text := func(path string) string { return term.Line(output.Text(output.At(data, path))) }
	at, _ := time.Parse(time.RFC3339Nano, cmp.Or(text("timestamp"), text("completedAt")))
	parts := []string{
		style.Paint(term.Faint, at.Local().Format("15:04:05.000")), fmt.Sprintf("%-22s", term.Line(name)),
		cmp.Or(text("job_id"), text("jobId"), text("batch_id"), text("batchId"), text("webhook_id")),
	}
	switch state := cmp.Or(text("next_state"), term.State(name, text("jobStatus"))); {
	case text("prev_state") != "":
		parts = append(parts, text("prev_state")+" -> "+style.Paint(term.StateColor(state), state))
	case state != "":
		parts = append(parts, style.Paint(term.StateColor(state), state))
	}
	if attempt := text("attempt"); attempt != "" && attempt != "0" {
		parts = append(parts, "attempt "+attempt)
	}
	switch {
	case text("progress.percentage") != "":
		parts = append(parts, text("progress.percentage")+"% "+text("progress.phase"))
	case text("detail") != "":
		parts = append(parts, text("detail"))
	case name == "event.emitted" || name == "event-emitted":
		parts = append(parts, text("data"))
	}
	return strings.TrimRight(strings.Join(parts, "  "), " ")
}
