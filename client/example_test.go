package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/forgerun/forgerun/client"
)

func connect() *client.Client {
	c, err := client.New(client.Config{URL: os.Getenv("FORGERUN_URL"), Key: os.Getenv("FORGERUN_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Submit a job and wait for its end. If a response is lost, the client repeats the request with the same idempotency key, so there is only
// one job. Set your own idempotency key to get only one job even if your program restarts.
func Example() {
	ctx, c := context.Background(), connect()
	receipt, err := c.Submit(ctx, client.JobRequest{Type: client.Execute, WorkKind: client.KindSuccessFast,
		Params: map[string]int{"customer": 42}}, client.IdempotencyKey("order-4711"))
	if err != nil {
		log.Fatal(err)
	}
	job, err := c.Wait(ctx, receipt.JobID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.JobID, job.State)
}

// A refused request returns a *Problem.
func ExampleProblem() {
	_, err := connect().Submit(context.Background(), client.JobRequest{Type: "NOW"})
	if problem, ok := errors.AsType[*client.Problem](err); ok {
		fmt.Println(problem.Status, problem.Code)
		for _, v := range problem.Violations {
			fmt.Println(v.Pointer, v.Detail)
		}
	}
}

// Watch a job. After a lost connection, the stream continues after the last event.
func ExampleClient_Stream() {
	for message, err := range connect().Stream(context.Background(), client.StreamOptions{JobID: "j1"}) {
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
}

// Submit work, and resubmit it while its failure is retryable. Each submission is a new job with a new idempotency key.
func ExampleClient_Run() {
	job, err := connect().Run(context.Background(), client.JobRequest{Type: client.Execute, WorkKind: client.KindFailAfterRetryable})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(job.JobID, job.State)
}

// Receive deliveries.
func ExampleVerifier() {
	verifier := client.Verifier{
		Secret: "whsec_...",
		Keys:   connect().Directory().Key, // also checks the ce- headers and the URL
		URL:    "https://example.com/in",
	}
	http.HandleFunc("POST /in", func(w http.ResponseWriter, r *http.Request) {
		message, err := verifier.Verify(r)
		switch {
		case errors.Is(err, client.ErrSignature):
			w.WriteHeader(http.StatusUnauthorized)
			return
		case err != nil:
			w.WriteHeader(http.StatusServiceUnavailable) // the service then sends the delivery again
			return
		}
		// Check here whether message.WebhookID was handled before.
		outcome, err := message.Outcome()
		fmt.Println(message.Name, message.Sequence, outcome.ProcessingStage, outcome.Retryable(), err)
		w.WriteHeader(http.StatusNoContent)
	})
}
