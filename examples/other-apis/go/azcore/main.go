// Azcore is a client of Azure Resource Manager. It waits with the poller of the Azure SDK for Go:
// https://pkg.go.dev/github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime#Poller.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

const thing = "/subscriptions/s/resourceGroups/g/providers/Example.Things/things/t"

func main() {
	pipeline := runtime.NewPipeline("other-apis", "v1", runtime.PipelineOptions{}, &policy.ClientOptions{})
	code := 0
	for _, job := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, thing + "/export", map[string]any{"format": "csv"}},
		{http.MethodPut, thing, map[string]any{"location": "l", "properties": map[string]any{}}},
	} {
		result, err := run(context.Background(), pipeline, job.method, job.path, job.body)
		fmt.Println(job.method, result, err)
		if err != nil {
			code = 1
		}
	}
	os.Exit(code)
}

func run(ctx context.Context, pipeline runtime.Pipeline, method, path string, body any) (any, error) {
	request, err := runtime.NewRequest(ctx, method, runtime.JoinPaths(os.Getenv("FORGERUN_URL"), path))
	if err != nil {
		return nil, err
	}
	if err = runtime.MarshalAsJSON(request, body); err != nil {
		return nil, err
	}
	response, err := pipeline.Do(request)
	if err != nil {
		return nil, err
	}
	if !runtime.HasStatusCode(response, http.StatusOK, http.StatusCreated, http.StatusAccepted) {
		return nil, runtime.NewResponseError(response)
	}
	poller, err := runtime.NewPoller[any](response, pipeline, nil)
	if err != nil {
		return nil, err
	}
	return poller.PollUntilDone(ctx, nil)
}
