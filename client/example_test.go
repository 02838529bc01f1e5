package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/forgerun/forgerun/client"
)

// scripted stands for a service: it answers each request with the first script
// that is left for its method and path.
type scripted struct {
	mu      sync.Mutex
	scripts map[string][]func(w http.ResponseWriter, r *http.Request)
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	key := r.Method + " " + r.URL.Path
	script := s.scripts[key][0]
	if len(s.scripts[key]) > 1 {
		s.scripts[key] = s.scripts[key][1:]
	}
	s.mu.Unlock()
	script(w, r)
}

func respond(status int, kind, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func lost(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

type scripts = map[string][]func(http.ResponseWriter, *http.Request)

// connect starts a scripted service. A program of yours has the address and the
// key from its configuration:
//
//	c, err := client.New(client.Config{URL: os.Getenv("FORGERUN_URL"), Key: os.Getenv("FORGERUN_KEY")})
func connect(answers scripts) (*client.Client, func()) {
	server := httptest.NewServer(&scripted{scripts: answers})
	c, err := client.New(client.Config{
		URL: server.URL, Key: "frk_...", HTTP: server.Client(),
		Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }, // examples do not wait
	})
	if err != nil {
		log.Fatal(err)
	}
	return c, server.Close
}

// Submit a job and wait for its end.
func Example() {
	c, done := connect(scripts{
		"POST /v1/jobs": {respond(202, jsonType, accepted)},
		"GET /v1/jobs/j1": {respond(200, jsonType, `{"job_id":"j1","state":"RUNNING"}`),
			respond(200, jsonType, `{"job_id":"j1","state":"SUCCEEDED"}`)},
	})
	defer done()
	ctx := context.Background()

	receipt, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: "SUCCESS_FAST", Params: map[string]int{"customer": 42}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt.JobID, receipt.State)
	job, err := c.Wait(ctx, receipt.JobID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.JobID, job.State)
	// Output:
	// j1 QUEUED
	// j1 SUCCEEDED
}

// The answer to the submission is lost. It is sent again with the same
// idempotency key, and there is one job. A key of your own makes that hold for
// a program that was started again, too.
func ExampleClient_Submit_idempotent() {
	var mu sync.Mutex // each connection is served by a goroutine of its own
	var keys []string
	note := func(next func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			mu.Unlock()
			next(w, r)
		}
	}
	c, done := connect(scripts{"POST /v1/jobs": {note(lost), note(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Idempotency-Replayed", "true")
		respond(202, jsonType, accepted)(w, r)
	})}})
	defer done()

	receipt, err := c.Submit(context.Background(), client.JobRequest{Type: client.Execute}, client.IdempotencyKey("order-4711"))
	if err != nil {
		log.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	fmt.Println(receipt.JobID, receipt.Replayed, keys)
	// Output: j1 true [order-4711 order-4711]
}

// What the service refuses is a *Problem.
func ExampleProblem() {
	c, done := connect(scripts{"POST /v1/jobs": {respond(400, problemType,
		`{"title":"Validation failed","code":"RFA_JOB_VALIDATION_FAILED","violations":[{"pointer":"/type",
			"detail":"The type must be one of EXECUTE, DEFERRED, EMIT_EVENT."}]}`)}})
	defer done()

	_, err := c.Submit(context.Background(), client.JobRequest{Type: "NOW"})
	var problem *client.Problem
	if errors.As(err, &problem) {
		fmt.Println(problem.Status, problem.Code)
		for _, v := range problem.Violations {
			fmt.Println(v.Pointer, v.Detail)
		}
	}
	// Output:
	// 400 RFA_JOB_VALIDATION_FAILED
	// /type The type must be one of EXECUTE, DEFERRED, EMIT_EVENT.
}

// Watch a job. The connection is lost after the second event; the stream goes
// on after it.
func ExampleClient_Stream() {
	events := func(w http.ResponseWriter, r *http.Request) {
		names := []string{"job-created", "job-running", "job-failed"}
		after, _ := strconv.Atoi(r.Header.Get("Last-Event-ID"))
		if after == len(names) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for i := after; i < len(names); i++ {
			if i == 2 && after == 0 {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			_, _ = fmt.Fprintf(w, "id: %d\nevent: %s\ndata: {\"jobStatus\":\"FAILED\",\"detail\":\"It broke.\"}\n\n", i+1, names[i])
		}
	}
	c, done := connect(scripts{"GET /v1/jobs/j1/events": {events}})
	defer done()

	for message, err := range c.Stream(context.Background(), client.StreamOptions{JobID: "j1"}) {
		if err != nil {
			log.Fatal(err)
		}
		if !message.IsOutcome() {
			fmt.Println(message.ID, message.Name)
			continue
		}
		outcome, err := message.Outcome()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(message.ID, message.Name, outcome.JobStatus, outcome.Detail)
	}
	// Output:
	// 1 job-created
	// 2 job-running
	// 3 job-failed FAILED It broke.
}

// Submit work, and submit it again while its failure says that this may help.
// Each time it is a new job, with a new idempotency key.
func ExampleClient_Run() {
	c, done := connect(scripts{
		"POST /v1/jobs": {respond(202, jsonType, accepted), respond(202, jsonType, `{"job_id":"j2","state":"QUEUED"}`)},
		"GET /v1/jobs/j1": {respond(200, jsonType, `{"job_id":"j1","state":"FAILED","failure":{"jobStatus":"FAILED","retryable":true,
			"retryAfter":30}}`)},
		"GET /v1/jobs/j2": {respond(200, jsonType, `{"job_id":"j2","state":"SUCCEEDED"}`)},
	})
	defer done()

	job, err := c.Run(context.Background(), client.JobRequest{Type: client.Execute, WorkKind: "FAIL_AFTER_RETRYABLE"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.JobID, job.State)
	// Output: j2 SUCCEEDED
}

// Receive deliveries.
func ExampleVerifier() {
	c, done := connect(scripts{})
	defer done()
	verifier := client.Verifier{
		Secret: "whsec_...",
		Keys:   c.Directory().Key, // also protects the ce- headers, and the URL
		URL:    "https://example.com/in",
	}
	http.HandleFunc("POST /in", func(w http.ResponseWriter, r *http.Request) {
		message, err := verifier.Verify(r)
		switch {
		case errors.Is(err, client.ErrSignature):
			w.WriteHeader(http.StatusUnauthorized)
			return
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable) // it comes again
			return
		}
		// Here a program looks whether it knows message.WebhookID.
		outcome, err := message.Outcome()
		fmt.Println(message.Name, message.Sequence, outcome.ProcessingStage, outcome.Retryable(), err)
		w.WriteHeader(http.StatusNoContent)
	})
}
