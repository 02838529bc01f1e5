// Command client is a well-behaved client of ForgeRun. It submits a few jobs, waits for each, and receives the webhook deliveries that
// report their ends.
//
//	FORGERUN_URL=http://127.0.0.1:8080 FORGERUN_API_KEY=frk_... go run ./examples/go/client
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
)

const patience = 2 * time.Minute // time limit for all jobs

func main() {
	log.SetFlags(0)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	// The client library waits as long as the service asks, retries safe requests, and repeats a submission with the same idempotency key.
	c, err := client.New(client.Config{
		URL: os.Getenv("FORGERUN_URL"), Key: os.Getenv("FORGERUN_API_KEY"), MaxTries: 10, Timeout: 10 * time.Second,
	})
	if err != nil {
		return err
	}
	taken, stop, err := receive(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	var ids []string
	var gaveUp []error
	for n, kind := range []string{
		client.KindSuccessFast, client.KindFailImmediate, client.KindSuccessFast, client.KindSuccessFast,
	} {
		accepted, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: kind},
			client.CorrelationID(fmt.Sprintf("order-%d-%d", os.Getpid(), n)))
		if err != nil {
			gaveUp = append(gaveUp, err) // continue with the other orders
			continue
		}
		ids = append(ids, accepted.JobID)
		j, err := c.Wait(ctx, accepted.JobID)
		if err != nil {
			gaveUp = append(gaveUp, err)
			continue
		}
		fmt.Println(j.JobID, kind, j.State)
	}
	return errors.Join(append(gaveUp, taken.await(ctx, ids))...)
}

type ends struct {
	mu    sync.Mutex
	known map[string]bool // webhook-ids of the deliveries received so far
	jobs  map[string]bool
}

func receive(ctx context.Context, c *client.Client) (*ends, func(), error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	hook, err := register(ctx, c, "http://"+listener.Addr().String()+"/forgerun")
	if err != nil {
		return nil, nil, err
	}
	e := &ends{known: map[string]bool{}, jobs: map[string]bool{}}
	server := &http.Server{Handler: e.handler(client.Verifier{Secret: hook.Secret}), ReadTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	return e, func() { _ = server.Close() }, nil
}

// register creates a webhook. Only the response to the first request contains the secret. If that response is lost, register deletes the
// webhook and creates another.
func register(ctx context.Context, c *client.Client, url string) (hook *client.Webhook, err error) {
	for range 5 {
		hook, err = c.CreateWebhook(ctx, client.WebhookRequest{URL: url, Events: []string{"job.succeeded", "job.failed"}})
		if err != nil || hook.Secret != "" {
			return hook, err
		}
		if err := c.DeleteWebhook(ctx, hook.WebhookID); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("the responses with the secret were lost")
}

// handler accepts only deliveries that are signed with the secret of the webhook. It sends the same response to the repetition of a
// delivery.
func (e *ends) handler(v client.Verifier) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		message, err := v.Verify(r)
		switch {
		case errors.Is(err, client.ErrSignature):
			log.Print("refused: ", err)
			w.WriteHeader(http.StatusUnauthorized)
			return
		case err != nil: // the signature could not be checked; the service sends the delivery again
			log.Print(err)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.known[message.WebhookID] {
			e.known[message.WebhookID] = true
			e.jobs[message.JobID()] = true
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

func (e *ends) await(ctx context.Context, ids []string) error {
	const look = 50 * time.Millisecond
	for _, id := range ids {
		for !e.has(id) {
			select {
			case <-time.After(look):
			case <-ctx.Done():
				return fmt.Errorf("no delivery about the end of job %s has arrived: %w", id, ctx.Err())
			}
		}
	}
	return nil
}

func (e *ends) has(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.jobs[id]
}
