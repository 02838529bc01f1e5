package jobs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
)

func watchCommand(s *session.Session) *cobra.Command {
	c := command.New("watch JOB", "Show what happens to a job until its end, and exit as it ended", s.Public(watch))
	c.Long = "Shows the events of a job as they happen, in a terminal with a progress bar below them, and exits as the job ended: see " +
		"'forgerun help exit-codes'. With -o json each message is a line."
	c.Flags().Duration("timeout", 0, "for how long; 0: no limit")
	return c
}

// refresh is how often the line below the events is drawn while nothing happens.
const refresh = 500 * time.Millisecond

// watch shows the one job until it has ended.
func watch(ctx context.Context, api *client.Client, printer *output.Printer, ids []string) error {
	v := &live{printer: printer, on: printer.Style.Terminal && printer.Form.IsTable()}
	v.line = term.NewStatus(printer.Out, v.on)
	for {
		if err := v.follow(ctx, api, ids[0]); err != nil {
			return err
		}
		job, err := api.Job(ctx, ids[0])
		if err != nil {
			return err
		}
		if !job.Final() { // it failed and is retried: the stream of its next attempt follows
			continue
		}
		if printer.Form.IsTable() {
			_, _ = fmt.Fprintln(printer.Out)
			if err := printer.One(jobView, job); err != nil {
				return err
			}
		}
		return command.Code(codeOf(job))
	}
}

// live is the view of a job: events, and in a terminal a line below them that is drawn again and again.
type live struct {
	printer *output.Printer
	on      bool // the line is drawn
	line    *term.Status

	lastID  string
	state   string
	since   time.Time // of the state
	percent int
	phase   string
}

// follow shows the messages of the job's stream until it ends.
func (v *live) follow(ctx context.Context, api *client.Client, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type received struct {
		client.Message
		err error
	}
	messages := make(chan received)
	go func() {
		defer close(messages)
		for m, err := range api.Stream(ctx, client.StreamOptions{JobID: id, LastEventID: v.lastID}) {
			select {
			case messages <- received{m, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	ticks := time.NewTicker(refresh)
	defer ticks.Stop()
	defer v.line.Clear()
	for {
		select {
		case m, more := <-messages:
			switch {
			case !more:
				return ctx.Err()
			case m.err != nil:
				return m.err
			}
			v.line.Clear()
			if err := v.message(m.Message); err != nil {
				return err
			}
		case <-ticks.C:
		}
		v.draw()
	}
}

func (v *live) message(m client.Message) error {
	if m.ID != "" {
		v.lastID = m.ID
	}
	if p, err := m.Progress(); err == nil {
		v.percent, v.phase = p.Percentage, p.Phase
		if v.on {
			return nil // the bar shows it
		}
		return show(v.printer, m)
	}
	if e, err := m.Event(); err == nil && e.NextState != "" {
		v.state, v.since = e.NextState, e.Timestamp
		if e.NextState == client.Queued {
			v.percent, v.phase = 0, ""
		}
	}
	return show(v.printer, m)
}

// draw writes the line below the events, which has no end.
func (v *live) draw() {
	if !v.on || v.state == "" {
		return
	}
	elapsed := max(0, v.printer.Now().Sub(v.since))
	text := fmt.Sprintf("%s %s %3d%% %s %s", v.state, Bar(v.percent, 24), v.percent, term.Line(v.phase), output.Span(elapsed))
	v.line.Show(text, v.state, v.printer.Style.Paint(term.StateColor(v.state), v.state))
}

// Bar is a progress bar of a width.
func Bar(percent, width int) string {
	full := min(max(percent, 0), 100) * width / 100
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}
