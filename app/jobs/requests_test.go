package jobs

import (
	"fmt"
	"time"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// newBatchRequest is a request for jobs, one for each item.
func newBatchRequest(items ...job.Request) job.BatchRequest {
	r := job.BatchRequest{ClientID: apptest.ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Hash: [32]byte{1}, Language: "de"}
	for i, item := range items {
		r.Items = append(r.Items, job.ItemRequest{ItemID: fmt.Sprint("item-", i), Request: item})
	}
	return r
}

func newRequests(n int) []job.Request {
	items := make([]job.Request, n)
	for i := range items {
		items[i] = newRequest()
	}
	return items
}

var testCatalogue = job.Catalogue{Types: job.Types, Kinds: job.Kinds(), FailProbability: 0.2, MaxRuntime: apptest.Limit}

func newRequest(change ...func(*job.Request)) job.Request {
	r := job.Request{
		ClientID: apptest.ClientA, RequestID: "request-1", ReceivedAt: time.Now(), Type: job.Execute, WorkKind: job.SuccessFast,
		Hash: [32]byte{1},
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func deferred(d time.Duration) func(*job.Request) {
	return func(r *job.Request) {
		at := time.Now().Add(d)
		r.Type, r.ExecutionAt = job.Deferred, &at
	}
}

func withKey(key string) func(*job.Request) {
	return func(r *job.Request) { r.IdempotencyKey = key }
}
