package jobs

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
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// BatchCommand is "batch" with what is below it.
func BatchCommand(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{
		Use: "batch", Aliases: []string{"batches"}, Short: "Submit many jobs in one request, and see how they ended",
	}))
	c.AddCommand(submitBatchCommand(s), watchBatchCommand(s),
		command.New("get BATCH", "Show a batch as it is now", session.Show(s, batchView, (*client.Client).Batch)),
		command.New("cancel BATCH", "Cancel the jobs of a batch that have not ended",
			session.Show(s, batchView, (*client.Client).CancelBatch)))
	return c
}

var batchView = output.NewView("batch_id",
	"BATCH:batch_id, STATUS:status:state, TOTAL:total, SUCCEEDED:counts.succeeded, FAILED:counts.failed, "+
		"CANCELED:counts.canceled, REFUSED:counts.refused, AGE:created_at:age, COMPLETED:completed_at:wide")

var itemView = output.NewView("job_id", "ITEM:item_id, JOB:job_id, STATE::state, DETAIL:failure.detail", func(v any) string {
	if state := output.Text(output.At(v, "state")); state != "" {
		return state
	}
	return "REFUSED"
})

func submitBatchCommand(s *session.Session) *cobra.Command {
	key, waiting := "", false
	c := command.New("submit FILE", "Submit up to 1,000 jobs of a file in one request",
		s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
			jobs, err := readJobs(s, args[0])
			if err != nil {
				return err
			}
			sent := idempotencyKey(key)
			receipt, err := api.SubmitBatch(ctx, jobs, client.IdempotencyKey(sent))
			switch {
			case err != nil:
				return explainLost(s, err, sent, "batch was")
			case waiting:
				return waitForBatch(ctx, api, p, []string{receipt.BatchID})
			}
			return showReceipt(p, receipt)
		}))
	c.Long = "Submits the jobs of FILE (- is standard input) in one request. FILE has a list of submissions, or an object with that list\n" +
		"as jobs, in JSON or YAML; or a submission in JSON on each line. The exit code is 1 if one of them was refused."
	c.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repetition get the same batch; a new one is sent without it")
	c.Flags().BoolVarP(&waiting, "wait", "w", false, "wait for the end of all, and exit with 1 unless all succeeded")
	c.Flags().Duration("timeout", 0, "with --wait: for how long; 0: no limit")
	return c
}

// readJobs reads the submissions of a file.
func readJobs(s *session.Session, file string) ([]client.JobRequest, error) {
	content, err := s.ReadFile(file)
	if err != nil {
		return nil, err
	}
	jobs, err := submissions(content)
	if err != nil {
		return nil, command.Usagef("%s: %w", file, err)
	}
	return jobs, nil
}

// showReceipt prints what became of each item. The exit code is 1 if one was refused.
func showReceipt(p *output.Printer, receipt *client.BatchReceipt) (err error) {
	if !p.Form.IsTable() {
		err = p.One(batchView, receipt)
	} else {
		_, _ = fmt.Fprintf(p.Out, "Batch %s\n\n", term.Line(receipt.BatchID))
		err = p.List(itemView, output.Items(receipt.Jobs))
	}
	if err == nil && slices.ContainsFunc(receipt.Jobs, func(i client.BatchItem) bool { return i.Failure != nil }) {
		return command.Code(command.Failed)
	}
	return err
}

func watchBatchCommand(s *session.Session) *cobra.Command {
	c := command.New("watch BATCH", "Wait for the end of a batch, name what failed, and exit as it ended", s.Public(waitForBatch))
	c.Long = "Waits until all jobs of the batch have ended, in a terminal with a progress bar, and prints the batch and what\n" +
		"failed. Exit codes: 0 all succeeded, 1 one failed or was refused, 3 the batch was canceled, 4 the time to wait was over first."
	c.Flags().Duration("timeout", 0, "for how long; 0: no limit")
	return c
}

// waitForBatch waits for the end of the one batch, prints it with the jobs that failed, and exits as it ended.
func waitForBatch(ctx context.Context, api *client.Client, p *output.Printer, ids []string) error {
	var batch *client.Batch
	line := term.NewStatus(p.Out, p.Style.Terminal && p.Form.IsTable())
	err := session.Poll(ctx, func() (ended bool, pause time.Duration, err error) {
		if batch, err = api.Batch(ctx, ids[0]); err != nil {
			return false, 0, err
		}
		line.Show(progressOf(batch))
		return batch.Final(), cmp.Or(batch.RetryAfter, time.Second), nil
	})
	line.Clear()
	if err == nil {
		err = p.One(batchView, batch)
	}
	if err == nil && batch.Outcome != nil && len(batch.Outcome.FailedItems) > 0 && p.Form.IsTable() {
		_, _ = fmt.Fprintln(p.Out)
		err = p.List(failedView, output.Items(batch.Outcome.FailedItems))
	}
	switch {
	case err != nil || batch.Status == client.StatusCompleted:
		return err
	case batch.Status == client.StatusCancelled:
		return command.Code(command.Canceled)
	}
	return command.Code(command.Failed)
}

var failedView = output.NewView("item_id", "ITEM:item_id, JOB:job_id, STATUS:status:state, STAGE:processing_stage:wide, DETAIL:detail")

// progressOf is a line about how far a batch is.
func progressOf(b *client.Batch) string {
	ended := b.Counts.Succeeded + b.Counts.Failed + b.Counts.Canceled + b.Counts.Refused
	return fmt.Sprintf("%s %d of %d ended, %d failed", Bar(ended*100/max(1, b.Total), 24), ended, b.Total, b.Counts.Failed)
}

// submissions reads the jobs of a file: JSON or YAML, or JSON on each line.
func submissions(content []byte) ([]client.JobRequest, error) {
	if lines, ok := onLines(content); ok {
		return lines, nil
	}
	var document any
	if err := yaml.Unmarshal(content, &document); err != nil { // JSON is YAML
		return nil, fmt.Errorf("it is neither JSON nor YAML: %w", err)
	}
	if object, ok := document.(map[string]any); ok && object["jobs"] != nil {
		document = object["jobs"]
	}
	if _, ok := document.([]any); !ok {
		return nil, errors.New("it has no list of jobs")
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	var jobs []client.JobRequest
	if err := session.Strictly(text, &jobs); err != nil {
		return nil, fmt.Errorf("its jobs cannot be read: %w", err)
	}
	return jobs, nil
}

// onLines reads a submission of each line. It is not ok if a line is something else.
func onLines(content []byte) (jobs []client.JobRequest, ok bool) {
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var one client.JobRequest
		if session.Strictly(line, &one) != nil {
			return nil, false
		}
		jobs = append(jobs, one)
	}
	return jobs, lines.Err() == nil && len(jobs) > 0
}
