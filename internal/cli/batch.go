package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

var (
	batchView = output.NewView("BATCH:batch_id, STATUS:status:state, TOTAL:total, SUCCEEDED:counts.succeeded, FAILED:counts.failed, " +
		"CANCELED:counts.canceled, REFUSED:counts.refused, AGE:created_at:age, COMPLETED:completed_at:wide")
	receiptView = output.NewView("ITEM:item_id, JOB:job_id, STATE::state, DETAIL:failure.detail", func(v any) string {
		return cmp.Or(output.Text(output.At(v, "state")), "REFUSED")
	})
	failedView = output.NewView("ITEM:item_id, JOB:job_id, STATUS:status:state, STAGE:processing_stage:wide, DETAIL:detail")
)

func (s *Shell) batch() *cobra.Command {
	return s.forClients(s.group("batch batches", "Submit many jobs in one request and follow them",
		s.cmd("submit FILE", "Submit up to 1,000 jobs from a file in one request", submitBatch),
		s.cmd("watch BATCH", "Wait until a batch ends and list its failed jobs; the exit code reports the outcome", watchFlags(waitForBatch)),
		s.cmd("get BATCH", "Show the current state of a batch", byID(batchView, (*client.Client).Batch)),
		s.cmd("cancel BATCH", "Cancel the unfinished jobs of a batch", byID(batchView, (*client.Client).CancelBatch))))
}

func submitBatch(f *pflag.FlagSet) run {
	key := f.String("idempotency-key", "", "idempotency `key`: repeating the command with this key returns the same batch; default: a new key")
	waiting := f.BoolP("wait", "w", false, "wait until all jobs have ended; exit with 1 unless all succeeded")
	timeoutFlag(f, "with --wait: ")
	return using(func(c *call, api *client.Client) error {
		content, err := c.readFile(c.args[0])
		if err != nil {
			return err
		}
		jobs, err := submissions(content)
		if err != nil {
			return command.Usagef("%s: %w", c.args[0], err)
		}
		sent := cmp.Or(*key, newKey())
		receipt, err := api.SubmitBatch(c, jobs, client.IdempotencyKey(sent))
		switch {
		case err != nil:
			return c.explainLost(err, sent, "batch was")
		case *waiting:
			c.args = []string{receipt.BatchID}
			return c.accepted("batch", "batch watch", waitForBatch(c, api))
		case c.IsTable():
			_, _ = fmt.Fprintf(c.Out, "Batch %s\n\n", term.Line(receipt.BatchID))
			err = c.List(receiptView, receipt.Jobs)
		default:
			err = c.One(batchView, receipt)
		}
		if err == nil && slices.ContainsFunc(receipt.Jobs, func(i client.BatchItem) bool { return i.Failure != nil }) {
			return command.Code(command.Failed)
		}
		return err
	})(f)
}

func waitForBatch(c *call, api *client.Client) error {
	var batch *client.Batch
	line := term.NewStatus(c.Out, c.Style.Terminal && c.IsTable())
	err := poll(c, func() (ended bool, pause time.Duration, err error) {
		if batch, err = api.Batch(c, c.args[0]); err != nil {
			return false, 0, err
		}
		n := batch.Counts
		done := n.Succeeded + n.Failed + n.Canceled + n.Refused
		line.Show(fmt.Sprintf("%s %d of %d ended, %d failed", bar(done*100/max(1, batch.Total)), done, batch.Total, n.Failed))
		return batch.Final(), cmp.Or(batch.RetryAfter, time.Second), nil
	})
	line.Clear()
	if err == nil {
		err = c.One(batchView, batch)
	}
	if err == nil && batch.Outcome != nil && len(batch.Outcome.FailedItems) > 0 && c.IsTable() {
		_, _ = fmt.Fprintln(c.Out)
		err = c.List(failedView, batch.Outcome.FailedItems)
	}
	switch {
	case err != nil || batch.Status == client.StatusCompleted:
		return err
	case batch.Status == client.StatusCancelled:
		return command.Code(command.Canceled)
	}
	return command.Code(command.Failed)
}

func poll(ctx context.Context, ask func() (ended bool, pause time.Duration, err error)) error {
	for {
		ended, pause, err := ask()
		if err != nil || ended {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The content is JSON, YAML or JSON Lines.
func submissions(content []byte) (jobs []client.JobRequest, err error) {
	if lines, ok := onLines(content); ok {
		return lines, nil
	}
	var document any
	if err := yaml.Unmarshal(content, &document); err != nil { // also parses JSON, a subset of YAML
		return nil, fmt.Errorf("the file is neither JSON nor YAML: %w", err)
	}
	if object, ok := document.(map[string]any); ok && object["jobs"] != nil {
		document = object["jobs"]
	}
	if _, ok := document.([]any); !ok {
		return nil, errors.New("the file contains no list of jobs")
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	if err := strictly(text, &jobs); err != nil {
		return nil, fmt.Errorf("read the jobs of the file: %w", err)
	}
	return jobs, nil
}

func onLines(content []byte) (jobs []client.JobRequest, ok bool) {
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var one client.JobRequest
		if strictly(line, &one) != nil {
			return nil, false
		}
		jobs = append(jobs, one)
	}
	return jobs, lines.Err() == nil && len(jobs) > 0
}
