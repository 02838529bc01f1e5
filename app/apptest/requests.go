package apptest

import (
	"fmt"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job"
)

// batchRequest is a request for jobs, one for each item.
func BatchRequest(items ...job.Request) job.BatchRequest {
	r := job.BatchRequest{ClientID: ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Hash: [32]byte{1}, Language: "de"}
	for i, item := range items {
		r.Items = append(r.Items, job.ItemRequest{ItemID: fmt.Sprint("item-", i), Request: item})
	}
	return r
}

func Requests(n int) []job.Request {
	items := make([]job.Request, n)
	for i := range items {
		items[i] = Request()
	}
	return items
}

// targetsFunc is Targets.
type targetsFunc func(url string) string

// noLocals refuses what has the word local in it.
var NoLocals = targetsFunc(func(url string) string {
	if strings.Contains(url, "local") {
		return "The host is a local one."
	}
	return ""
})

var Catalogue = job.Catalogue{Types: job.Types, Kinds: job.Kinds(), FailProbability: 0.2, MaxRuntime: Limit}

func Request(change ...func(*job.Request)) job.Request {
	r := job.Request{
		ClientID: ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast, Hash: [32]byte{1},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func Deferred(d time.Duration) func(*job.Request) {
	return func(r *job.Request) {
		at := time.Now().Add(d)
		r.Type, r.ExecutionAt = job.Deferred, &at
	}
}

func WithKey(key string) func(*job.Request) {
	return func(r *job.Request) { r.IdempotencyKey = key }
}
