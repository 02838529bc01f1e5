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

var eventView = output.View{ID: "event_id", Columns: []output.Column{
	{Head: "SEQ", Path: "seq"},
	{Head: "TIME", Path: "timestamp"},
	{Head: "EVENT", Path: "event_name"},
	{Head: "FROM", Path: "prev_state"},
	{Head: "TO", Path: "next_state", State: true},
	{Head: "ATTEMPT", Path: "attempt"},
	{Head: "EVENT ID", Path: "event_id", Wide: true},
	{Head: "DATA", Path: "data", Wide: true},
}}

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
		Use: "logs JOB", Short: "The event log of a job", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if follow {
				return stream(c.Context(), s, client.StreamOptions{JobID: args[0]})
			}
			api, err := s.Client()
			if err != nil {
				return err
			}
			return log(s, func() ([]any, error) { return Take(api.JobEvents(c.Context(), args[0]), 0) })
		},
	}
	c.Flags().BoolVar(&follow, "follow", false, "go on until the job has ended")
	return c
}

// EventsCommand is "events".
func EventsCommand(s *session.Session) *cobra.Command {
	follow, after, limit := false, "", 0
	c := s.ForClients(&cobra.Command{
		Use: "events", Short: "The events of all jobs, batches and webhooks of the client", Args: command.Exactly(0),
		Long: "Lists the events of all jobs, batches and webhooks of the client, or with --follow shows them as they happen, from now on\n" +
			"or from the event --after. Interrupted connections are resumed: nothing is missed or shown twice.",
		Example: "  forgerun events --follow\n  forgerun events --follow -o json | jq -r .name",
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case follow:
				return stream(c.Context(), s, client.StreamOptions{LastEventID: after})
			case after != "":
				return command.Usagef("--after is for --follow")
			}
			api, err := s.Client()
			if err != nil {
				return err
			}
			return log(s, func() ([]any, error) { return newest(api.Events(c.Context()), limit) })
		},
	})
	c.Flags().BoolVar(&follow, "follow", false, "show events as they happen")
	c.Flags().StringVar(&after, "after", "", "with --follow: go on after the event with this `id`")
	c.Flags().IntVar(&limit, "limit", 100, "without --follow: the latest so many; 0: all")
	return c
}

// newest reads a list, which begins with what is oldest, and gives its last limit entries.
func newest(entries iter.Seq2[client.Event, error], limit int) ([]any, error) {
	var all []any
	for entry, err := range entries {
		if err != nil {
			return nil, err
		}
		if all = append(all, entry); limit > 0 && len(all) >= 2*limit {
			all = slices.Clone(all[len(all)-limit:])
		}
	}
	if limit > 0 && len(all) > limit {
		all = all[len(all)-limit:]
	}
	return all, nil
}

// log prints events, one on a line.
func log(s *session.Session, read func() ([]any, error)) error {
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	events, err := read()
	if err != nil {
		return err
	}
	if !printer.Form.IsTable() {
		return printer.List(eventView, events)
	}
	for _, e := range events {
		event, ok := e.(client.Event)
		if !ok {
			continue
		}
		err := printer.Each(eventView, event, func(value any) string { return lineOf(printer.Style, event.Name, value) })
		if err != nil {
			return err
		}
	}
	return nil
}

// stream prints messages as they come.
func stream(ctx context.Context, s *session.Session, o client.StreamOptions) error {
	api, err := s.Client()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	for message, err := range api.Stream(ctx, o) {
		if err != nil {
			return err
		}
		if err := show(printer, message); err != nil {
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
	switch state := cmp.Or(text("next_state"), text("jobStatus")); {
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
