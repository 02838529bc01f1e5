package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

var eventView = output.NewView("SEQ:seq, TIME:timestamp, EVENT:event_name, FROM:prev_state, TO:next_state:state, ATTEMPT:attempt, " +
	"EVENT ID:event_id:wide, DATA:data:wide")

func jobEvents(f *pflag.FlagSet) run {
	follow := f.Bool("follow", false, "also show new events until the job has ended")
	return using(func(c *call, api *client.Client) error {
		if *follow {
			return c.stream(api, client.StreamOptions{JobID: c.args[0]})
		}
		return c.log(api.JobEvents(c, c.args[0]), limit{})
	})(f)
}

func (s *Shell) events() *cobra.Command {
	return s.forClients(s.cmd("events", "Show the events of all jobs, batches and webhooks of the client", events))
}

func events(f *pflag.FlagSet) run {
	follow, after := f.Bool("follow", false, "show events as they happen"),
		f.String("after", "", "with --follow: start after the event with this `id`")
	limit := limit{most: 100}
	f.Var(&limit, "limit", "without --follow: show at most this `number` of the latest events; 0: all")
	return using(func(c *call, api *client.Client) error {
		switch {
		case *follow:
			return c.stream(api, client.StreamOptions{LastEventID: *after})
		case *after != "":
			return command.Usagef("--after needs --follow")
		}
		return c.log(api.Events(c), limit)
	})(f)
}

func (c *call) log(entries iter.Seq2[client.Event, error], limit limit) error {
	var events []client.Event
	for event, err := range entries {
		if err != nil {
			return err
		}
		events = append(events, event)
	}
	if limit.cuts(c, len(events)) {
		events = events[len(events)-limit.most:]
	}
	if !c.IsTable() {
		return c.List(eventView, events)
	}
	for _, event := range events {
		if err := c.Each(event, func(value any) string { return c.eventLine(event.EventName, value) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) stream(api *client.Client, o client.StreamOptions) error {
	for message, err := range api.Stream(c, o) {
		if err != nil {
			return err
		}
		if err := c.printMessage(message); err != nil {
			return err
		}
	}
	return nil
}

func (c *call) printMessage(m client.Message) error {
	shown := struct {
		ID   string          `json:"id"` // pass the id to --after to resume the stream
		Name string          `json:"name"`
		Data json.RawMessage `json:"data"`
	}{m.ID, m.Name, m.Data}
	return c.Each(shown, func(value any) string {
		data := output.At(value, "data")
		if object, ok := data.(map[string]any); ok && object["timestamp"] == nil && object["completedAt"] == nil {
			object["timestamp"] = m.ReceivedAt.UTC().Format(time.RFC3339Nano)
		}
		return c.eventLine(m.Name, data)
	})
}

func (c *call) eventLine(name string, data any) string {
	text := func(paths ...string) (found string) {
		for _, path := range paths {
			found = cmp.Or(found, term.Line(output.Text(output.At(data, path))))
		}
		return found
	}
	at, _ := time.Parse(time.RFC3339Nano, text("timestamp", "completedAt"))
	parts := []string{
		c.Style.Paint(term.Faint, at.Local().Format("15:04:05.000")), fmt.Sprintf("%-22s", term.Line(name)),
		text("job_id", "jobId", "batch_id", "batchId", "webhook_id"),
	}
	switch state := cmp.Or(text("next_state"), term.State(name, text("jobStatus"))); {
	case text("prev_state") != "":
		parts = append(parts, text("prev_state")+" -> "+c.Style.Paint(term.StateColor(state), state))
	case state != "":
		parts = append(parts, c.Style.Paint(term.StateColor(state), state))
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

const (
	longPoll = 20 * time.Second // the service may delay its response until the job ends, at most this long
	atOnce   = 16               // maximum number of jobs to wait for at the same time
)

func watchFlags(do func(c *call, api *client.Client) error) action {
	return func(f *pflag.FlagSet) run {
		timeoutFlag(f, "")
		return using(do)(f)
	}
}

func wait(c *call, api *client.Client) error {
	ended, errs := make([]*client.Job, len(c.args)), make([]error, len(c.args))
	var waiting errgroup.Group
	waiting.SetLimit(atOnce)
	for i, id := range c.args {
		waiting.Go(func() error {
			ended[i], errs[i] = api.Wait(c, id, client.PreferWait(longPoll))
			return nil
		})
	}
	_ = waiting.Wait() // the errors are in errs
	code := command.Succeeded
	for i, id := range c.args {
		if errs[i] != nil {
			return fmt.Errorf("%s: %w", id, errs[i])
		}
		code = worse(code, codeOf(ended[i]))
	}
	if err := printJobs(c, ended); err != nil {
		return err
	}
	return command.Code(code)
}

func codeOf(job *client.Job) int {
	switch job.State {
	case client.Succeeded:
		return command.Succeeded
	case client.Canceled:
		return command.Canceled
	}
	return command.Failed
}

// A failure is worse than a cancel, although its exit code is lower.
func worse(a, b int) int {
	if a == command.Failed || b == command.Failed {
		return command.Failed
	}
	return max(a, b)
}

func watch(c *call, api *client.Client) error {
	on := c.Style.Terminal && c.IsTable()
	line, lastID, state, progress := term.NewStatus(c.Out, on), "", "", client.Progress{}
	defer line.Clear()
	for {
		for m, err := range api.Stream(c, client.StreamOptions{JobID: c.args[0], LastEventID: lastID}) {
			if err != nil {
				return err
			}
			lastID = cmp.Or(m.ID, lastID)
			if e, err := m.Event(); err == nil && e.NextState != "" {
				if state = e.NextState; state == client.Queued {
					progress = client.Progress{}
				}
			}
			p, err := m.Progress()
			if err == nil {
				progress = *p
			}
			if err != nil || !on { // a status line, if there is one, shows the progress instead
				line.Clear()
				if err := c.printMessage(m); err != nil {
					return err
				}
			}
			if state != "" {
				text := fmt.Sprintf("%s %s %3d%% %s", state, bar(progress.Percentage), progress.Percentage, term.Line(progress.Phase))
				line.Show(text, state, c.Style.Paint(term.StateColor(state), state))
			}
		}
		job, err := api.Job(c, c.args[0])
		if err != nil {
			return err
		}
		if !job.Final() { // the attempt ended but the job is retried: follow the next stream
			continue
		}
		line.Clear()
		if c.IsTable() {
			_, _ = fmt.Fprintln(c.Out)
		}
		if c.IsTable() || c.Quiet {
			if err := c.One(jobView, job); err != nil {
				return err
			}
		}
		return command.Code(codeOf(job))
	}
}

func bar(percent int) string {
	const width = 24
	full := min(max(percent, 0), 100) * width / 100
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}
