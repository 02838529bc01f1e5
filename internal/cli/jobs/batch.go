package jobs

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// BatchCommand is "batch" with what is below it.
func BatchCommand(s *session.Session) *cobra.Command {
	c := s.ForClients(command.Group(&cobra.Command{
		Use: "batch", Aliases: []string{"batches"}, Short: "Submit many jobs in one request, and see how they ended",
		Example: "  forgerun batch submit jobs.yaml --wait",
	}))
	c.AddCommand(submitBatchCommand(s), getBatchCommand(s), cancelBatchCommand(s))
	return c
}

var batchView = output.View{ID: "batch_id", Columns: []output.Column{
	{Head: "BATCH", Path: "batch_id"},
	{Head: "STATUS", Path: "status", State: true},
	{Head: "TOTAL", Path: "total"},
	{Head: "SUCCEEDED", Path: "counts.succeeded"},
	{Head: "FAILED", Path: "counts.failed"},
	{Head: "CANCELED", Path: "counts.canceled"},
	{Head: "REFUSED", Path: "counts.refused"},
	{Head: "AGE", Path: "created_at", Age: true},
	{Head: "COMPLETED", Path: "completed_at", Wide: true},
}}

var itemView = output.View{ID: "job_id", Columns: []output.Column{
	{Head: "ITEM", Path: "item_id"},
	{Head: "JOB", Path: "job_id"},
	{Head: "STATE", Show: func(v any) string {
		if state := output.Text(output.At(v, "state")); state != "" {
			return state
		}
		return "REFUSED"
	}, State: true},
	{Head: "DETAIL", Path: "failure.detail"},
}}

func submitBatchCommand(s *session.Session) *cobra.Command {
	key, waiting, timeout := "", false, time.Duration(0)
	c := &cobra.Command{
		Use: "submit FILE", Short: "Submit up to 1,000 jobs of a file in one request", Args: command.Exactly(1),
		Long: "Submits the jobs of FILE (- is standard input) in one request. FILE has a list of submissions, or an object with that list\n" +
			"as jobs, in JSON or YAML; or a submission in JSON on each line. The exit code is 1 if one of them was refused.",
		Example: "  forgerun batch submit jobs.yaml\n  generate | forgerun batch submit - --wait --timeout 10m",
		RunE: func(c *cobra.Command, args []string) error {
			return submitBatch(c.Context(), s, args[0], key, waiting, timeout)
		},
	}
	c.Flags().StringVar(&key, "idempotency-key", "", "`key` that makes a repetition get the same batch; a new one is sent without it")
	c.Flags().BoolVarP(&waiting, "wait", "w", false, "wait for the end of all, and exit with 1 unless all succeeded")
	c.Flags().DurationVar(&timeout, "timeout", 0, "with --wait: for how long; 0: no limit")
	return c
}

func submitBatch(ctx context.Context, s *session.Session, file, key string, waiting bool, timeout time.Duration) error {
	content, err := s.ReadFile(file)
	if err != nil {
		return err
	}
	jobs, err := submissions(content)
	if err != nil {
		return command.Usagef("%s: %w", file, err)
	}
	api, err := s.Client()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	if key == "" {
		key = "cli-" + rand.Text()
	}
	receipt, err := api.SubmitBatch(ctx, jobs, client.IdempotencyKey(key))
	if err != nil {
		if _, lost := errors.AsType[*client.NoAnswerError](err); lost {
			s.Notef("Whether the batch was accepted is not known. The same command with --idempotency-key %s makes no second one.", key)
		}
		return err
	}
	if waiting {
		return waitForBatch(ctx, s, api, receipt.BatchID, timeout)
	}
	if !printer.Form.IsTable() {
		err = printer.One(batchView, receipt)
	} else {
		_, _ = fmt.Fprintf(s.Stdout, "Batch %s\n\n", receipt.BatchID)
		err = printer.List(itemView, anys(receipt.Jobs))
	}
	if err != nil {
		return err
	}
	for _, item := range receipt.Jobs {
		if item.Failure != nil {
			return command.Code(command.Failed)
		}
	}
	return nil
}

func waitForBatch(ctx context.Context, s *session.Session, api *client.Client, id string, timeout time.Duration) error {
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	ctx, cancel := session.Within(ctx, timeout)
	defer cancel()
	for {
		batch, err := api.Batch(ctx, id)
		if err != nil {
			return session.Explain(ctx, err)
		}
		if batch.Final() {
			if err := printer.One(batchView, batch); err != nil {
				return err
			}
			switch batch.Status {
			case client.StatusCompleted:
				return nil
			case client.StatusCancelled:
				return command.Code(command.Canceled)
			}
			return command.Code(command.Failed)
		}
		wait := batch.RetryAfter
		if wait <= 0 {
			wait = time.Second
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return session.Explain(ctx, ctx.Err())
		}
	}
}

func getBatchCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "get BATCH", Short: "Show a batch as it is now", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return oneBatch(s, func(api *client.Client) (*client.Batch, error) { return api.Batch(c.Context(), args[0]) })
		},
	}
}

func cancelBatchCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "cancel BATCH", Short: "Cancel the jobs of a batch that have not ended", Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return oneBatch(s, func(api *client.Client) (*client.Batch, error) { return api.CancelBatch(c.Context(), args[0]) })
		},
	}
}

func oneBatch(s *session.Session, do func(*client.Client) (*client.Batch, error)) error {
	api, err := s.Client()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	batch, err := do(api)
	if err != nil {
		return err
	}
	return printer.One(batchView, batch)
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
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&jobs); err != nil {
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
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		if decoder.Decode(&one) != nil || decoder.More() {
			return nil, false
		}
		jobs = append(jobs, one)
	}
	return jobs, lines.Err() == nil && len(jobs) > 0
}
