// Command library uses the client library as a typical program does. The test bed judges its requests.
//
//	FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... library
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/forgerun/forgerun/client"
)

const patience = 150 * time.Second

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	c, err := client.New(client.Config{
		URL: os.Getenv("FORGERUN_URL"), Key: os.Getenv("FORGERUN_API_KEY"), MaxTries: 10, Timeout: 10 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		return err
	}
	ended, err := receive(ctx, c)
	if err != nil {
		return err
	}
	correlationID := func(name string) string { return fmt.Sprintf("go-%d-%s", os.Getpid(), name) }
	var ids []string
	var gaveUp []error // the other jobs continue after a permanent refusal
	for n, kind := range []string{client.KindSuccessFast, client.KindFailImmediate, client.KindSuccessFast, client.KindSuccessFast} {
		id, err := submitAndWait(ctx, c, n, kind, correlationID)
		gaveUp = append(gaveUp, err)
		if id != "" {
			ids = append(ids, id)
		}
	}
	gaveUp = append(gaveUp, read(ctx, c, ids[len(ids)-1]))
	inBatch, err := batch(ctx, c, correlationID)
	return errors.Join(append(gaveUp, err, await(ctx, ended, append(ids, inBatch...)))...)
}

// submitAndWait submits a job and waits for its end. It returns the id if the job was created.
func submitAndWait(ctx context.Context, c *client.Client, n int, kind string, correlationID func(string) string) (string, error) {
	request := client.JobRequest{Type: client.Execute, WorkKind: kind}
	accepted, err := c.Submit(ctx, request, client.CorrelationID(correlationID(fmt.Sprint(n))))
	if err != nil {
		return "", err
	}
	var options []client.Option
	if n%2 == 1 {
		options = append(options, client.PreferWait(10*time.Second))
	}
	job, err := c.Wait(ctx, accepted.JobID, options...)
	if err != nil {
		return accepted.JobID, err
	}
	fmt.Println(job.JobID, kind, job.State)
	return job.JobID, nil
}

// read reads all resources of a job.
func read(ctx context.Context, c *client.Client, id string) error {
	var names []string
	for message, err := range c.Stream(ctx, client.StreamOptions{JobID: id}) {
		if err != nil {
			return err
		}
		if message.ID != "" {
			names = append(names, message.Name)
		}
	}
	if want := []string{"job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"}; !slices.Equal(names, want) {
		return fmt.Errorf("the stream had %v", names)
	}
	report, err := c.Report(ctx, id, 0)
	if err != nil {
		return err
	}
	result, err := c.Result(ctx, id)
	if err != nil {
		return err
	}
	if report.Outcome != "SUCCESS" || len(result.Data) != 4096 {
		return fmt.Errorf("outcome %s, %d bytes", report.Outcome, len(result.Data))
	}
	return nil
}

// batch submits a few jobs at once, and returns their ids.
func batch(ctx context.Context, c *client.Client, correlationID func(string) string) ([]string, error) {
	var items []client.JobRequest
	for n := range 3 {
		item := client.JobRequest{Type: client.Execute, WorkKind: client.KindSuccessFast, CorrelationID: correlationID(fmt.Sprint("item-", n))}
		items = append(items, item)
	}
	receipt, err := c.SubmitBatch(ctx, items)
	if err != nil {
		return nil, err
	}
	ended, err := c.WaitBatch(ctx, receipt.BatchID)
	if err != nil {
		return nil, err
	}
	var ids []string
	for job, err := range c.Jobs(ctx, client.JobFilter{BatchID: receipt.BatchID, PageSize: 2}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, job.JobID)
	}
	if ended.Status != client.StatusCompleted || len(ids) != len(items) {
		return nil, fmt.Errorf("the batch is %s, with %d jobs", ended.Status, len(ids))
	}
	return ids, nil
}

// receive registers a webhook whose deliveries are verified by its secret and by the published keys. The channel gets the id of each job
// that has ended.
func receive(ctx context.Context, c *client.Client) (<-chan string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	var verifier client.Verifier
	ready, ended := make(chan struct{}), make(chan string, 1000)
	server := &http.Server{ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		<-ready // the first delivery may come before the response to the registration
		switch message, err := verifier.Verify(request); {
		case errors.Is(err, client.ErrSignature):
			w.WriteHeader(http.StatusUnauthorized)
		case err != nil: // the check failed; the delivery will be repeated
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			ended <- message.JobID()
			w.WriteHeader(http.StatusNoContent)
		}
	})}
	go func() { _ = server.Serve(listener) }() // until the program ends
	url := "http://" + listener.Addr().String() + "/forgerun"
	hook, err := c.CreateWebhook(ctx, client.WebhookRequest{URL: url, Events: []string{"job.succeeded", "job.failed"}})
	if err != nil {
		return nil, err
	}
	verifier = client.Verifier{Secret: hook.Secret, Keys: c.Directory().Key, URL: url}
	close(ready)
	return ended, nil
}

// await waits until deliveries have reported the ends of all jobs.
func await(ctx context.Context, ended <-chan string, ids []string) error {
	for len(ids) > 0 {
		select {
		case id := <-ended:
			ids = slices.DeleteFunc(ids, func(other string) bool { return other == id })
		case <-ctx.Done():
			return fmt.Errorf("no delivery about the end of %v: %w", ids, ctx.Err())
		}
	}
	return nil
}
