package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

const (
	held    = 20 * time.Second       // for how long the service holds an answer back: its maximum
	atOnce  = 16                     // jobs that are waited for at the same time
	refresh = 500 * time.Millisecond // of the line below the events
)

// watchFlags makes an action with --timeout.
func watchFlags(do func(c *call, api *client.Client) error) action {
	return func(f *pflag.FlagSet) run {
		timeoutFlag(f, "")
		return using(do)(f)
	}
}

// wait waits for the end of all jobs, prints them and exits as they ended.
func wait(c *call, api *client.Client) error {
	ended, errs := make([]*client.Job, len(c.args)), make([]error, len(c.args))
	var waiting errgroup.Group
	waiting.SetLimit(atOnce)
	for i, id := range c.args {
		waiting.Go(func() error {
			ended[i], errs[i] = api.Wait(c, id, client.PreferWait(held))
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
	if err := c.printJobs(output.Items(ended)); err != nil {
		return err
	}
	return command.Code(code)
}

// codeOf returns the exit code of a job that has ended.
func codeOf(job *client.Job) int {
	switch job.State {
	case client.Succeeded:
		return command.Succeeded
	case client.Canceled:
		return command.Canceled
	}
	return command.Failed
}

// worse orders exit codes: a failure, then a cancel, then success.
func worse(a, b int) int {
	if a == command.Failed || b == command.Failed {
		return command.Failed
	}
	return max(a, b)
}

// watch shows a job until it has ended.
func watch(c *call, api *client.Client) error {
	v := &live{call: c, on: c.Style.Terminal && c.IsTable()}
	v.line = term.NewStatus(c.Out, v.on)
	for {
		if err := v.follow(api, c.args[0]); err != nil {
			return err
		}
		job, err := api.Job(c, c.args[0])
		if err != nil {
			return err
		}
		if !job.Final() { // it failed and is retried: the stream of its next attempt follows
			continue
		}
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

// live shows the events of a job and, in a terminal, a line below them that is drawn again and again.
type live struct {
	*call
	on   bool // the line is drawn
	line *term.Status

	lastID  string
	state   string
	since   time.Time // of the state
	percent int
	phase   string
}

// follow shows the messages of the job's stream until the stream ends.
func (v *live) follow(api *client.Client, id string) error {
	ctx, cancel := context.WithCancel(v)
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
	} else if e, err := m.Event(); err == nil && e.NextState != "" {
		v.state, v.since = e.NextState, e.Timestamp
		if e.NextState == client.Queued {
			v.percent, v.phase = 0, ""
		}
	}
	return v.printMessage(m)
}

// draw writes the line below the events, which has no line feed.
func (v *live) draw() {
	if !v.on || v.state == "" {
		return
	}
	elapsed := output.Span(max(0, v.Now().Sub(v.since)))
	text := fmt.Sprintf("%s %s %3d%% %s %s", v.state, bar(v.percent), v.percent, term.Line(v.phase), elapsed)
	v.line.Show(text, v.state, v.Style.Paint(term.StateColor(v.state), v.state))
}

// bar is a progress bar.
func bar(percent int) string {
	const width = 24
	full := min(max(percent, 0), 100) * width / 100
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}
