// Command main submits a job with the client that oapi-codegen generates from the service's OpenAPI document, and prints its state.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
)

func main() {
	log.SetFlags(0)
	c, err := NewClientWithResponses(os.Getenv("FORGERUN_URL"), WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Getenv("FORGERUN_API_KEY"))
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	kind := SUCCESSFAST
	response, err := c.SubmitJobWithResponse(context.Background(), nil, JobRequest{Type: EXECUTE, WorkKind: &kind})
	if err != nil {
		log.Fatal(err)
	}
	if response.JSON202 == nil {
		log.Fatalf("%s: %s", response.Status(), response.Body)
	}
	fmt.Println(response.JSON202.State)
}
