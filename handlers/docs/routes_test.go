package docs_test

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/events"
	"github.com/forgerun/forgerun/app/jobs"
	"github.com/forgerun/forgerun/app/schedules"
	"github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/handlers"
	"github.com/forgerun/forgerun/handlers/docs"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

func routes() []httpkit.Route {
	return handlers.New(handlers.Config{}, handlers.Deps{
		Deps: httpkit.Deps{Keys: &clients.Service{}}, Jobs: &jobs.Service{}, Events: &events.Hub{},
		Schedules: schedules.New(&repo.Store{}, nil, 0, nil),
		Webhooks:  delivery.NewWebhooks(delivery.WebhooksDeps{Store: &repo.Store{}}), Testbed: &testbed.Bed{},
	}).Routes
}

var fiberParameter = regexp.MustCompile(`:(\w+)`)

func TestDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	root := openAPI()
	var documented []string
	for path, item := range root.in("paths") {
		for method := range tree(item.(map[string]any)) {
			if method == "parameters" || method == "x-also-at" {
				continue
			}
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	var served []string
	ids := map[string]bool{}
	for _, rt := range routes() {
		path := fiberParameter.ReplaceAllString(rt.Path, "{$1}")
		if short := strings.TrimSuffix(path, "/"); root.in("paths", short)["x-also-at"] == path {
			continue
		}
		served = append(served, rt.Method+" "+path)
		item := root.in("paths", path)
		operation := item.in(strings.ToLower(rt.Method))
		requireOperation(t, root, rt, item, operation)
		id, _ := operation["operationId"].(string)
		require.False(t, id == "" || ids[id], "%s needs an operationId of its own", path)
		require.Equal(t, id, docs.Operations()[rt.Method+" "+path], "fault rules name operations by their id")
		ids[id] = true
	}
	require.ElementsMatch(t, served, documented)
}

// Error statuses that any request to a known route can get.
var always = map[httpkit.Access][]string{
	httpkit.Public:        nil,
	httpkit.Registration:  {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.Account:       {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.ClientKey:     {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.ExpiredKey:    {"400", "401", "403", "406", "429", "500", "503", "504"},
	httpkit.OperatorToken: {"400", "401", "403", "406", "500", "503", "504"},
}

func requireOperation(t *testing.T, root tree, rt httpkit.Route, item, operation tree) {
	t.Helper()
	var queried, path []string
	parameters, _ := item["parameters"].([]any)
	own, _ := operation["parameters"].([]any)
	for _, p := range slices.Concat(parameters, own) {
		parameter := tree(p.(map[string]any)).follow(root)
		switch name, _ := parameter["name"].(string); parameter["in"] {
		case "query":
			queried = append(queried, name)
		case "path":
			path = append(path, name)
			require.Equal(t, true, parameter["required"])
		}
	}
	require.ElementsMatch(t, query.Names(rt.Query), queried, rt.Path)
	var segments []string
	for _, found := range fiberParameter.FindAllStringSubmatch(rt.Path, -1) {
		segments = append(segments, found[1])
	}
	require.ElementsMatch(t, segments, path, rt.Path)

	security, ok := operation["security"].([]any)
	switch rt.Access {
	case httpkit.Public:
		require.True(t, ok && len(security) == 0, rt.Path)
	case httpkit.Registration:
		require.Len(t, security, 2, rt.Path)
	case httpkit.Account, httpkit.ClientKey, httpkit.ExpiredKey, httpkit.OperatorToken:
		require.False(t, ok, rt.Path)
	}
	require.Subset(t, operation.in("responses").names(), append([]string{strconv.Itoa(rt.Success)}, always[rt.Access]...), rt.Path)
	if rt.Method != http.MethodGet {
		require.Contains(t, operation.in("responses").names(), "412", rt.Path)
	}
	if rt.Method == http.MethodPost || rt.Method == http.MethodPatch {
		require.NotNil(t, operation.in("requestBody"), rt.Path)
		require.Subset(t, operation.in("responses").names(), []string{"413", "415"}, rt.Path)
	}
}

func texts[T ~string](values ...T) []string {
	all := make([]string, len(values))
	for i, v := range values {
		all[i] = string(v)
	}
	return all
}

func TestDocumentHasTheVocabulary(t *testing.T) {
	t.Parallel()
	type word struct{ value, meaning string }
	described := map[string][]word{}
	say := func(name, value, meaning string) { described[name] = append(described[name], word{value, meaning}) }
	for _, e := range job.SendErrors {
		say("SendError", string(e), e.Text())
	}
	for _, r := range []job.DisabledReason{job.DisabledByOwner, job.DisabledGone, job.DisabledFailing} {
		say("DisabledReason", string(r), r.Text())
	}
	for _, c := range job.Codes {
		say("Code", string(c.Code), c.Title+".")
	}
	var failures []string
	for _, r := range job.Reasons {
		say("FailureReason", string(r.Reason), r.Detail)
		if !slices.Contains(failures, string(r.Code)) {
			failures = append(failures, string(r.Code))
		}
	}
	for _, s := range job.Stages {
		say("Stage", string(s.Stage), s.About)
	}
	want := map[string][]string{
		"State": texts(job.States...), "JobType": texts(job.Types...), "WorkKind": texts(job.AllKinds()...),
		"Outcome": texts(job.OutcomeSuccess, job.OutcomeFailed, job.OutcomeCanceled),
		"JobStatus": texts(job.StatusAccepted, job.StatusProcessing, job.StatusCompleted, job.StatusFailed, job.StatusCancelled,
			job.StatusTimedOut, job.StatusCompletedWithErrors),
		"FailureCode": failures, "BulkAction": texts(job.BulkActions...), "BulkResult": texts(job.BulkResults...),
		"BulkState": texts(job.BulkPending, job.BulkRunning, job.BulkDone, job.BulkAborted),
		"WaitingReason": texts(job.WaitingScheduled, job.WaitingBackoff, job.WaitingPaused, job.WaitingClientLimit, job.WaitingNoWorkers,
			job.WaitingQueue),
		"EventName": eventNames, "Subscription": append([]string{"*", "job.*"}, job.SubscribableEvents...),
		"ContentMode": texts(job.ContentBinary, job.ContentStructured), "DeliveryState": texts(job.DeliveryStates...),
	}
	schemas := openAPI().in("components", "schemas")
	for name, words := range described {
		for _, w := range words {
			want[name] = append(want[name], w.value)
			require.Equal(t, w.meaning, schemas.in(name, "x-enumDescriptions")[w.value], w.value)
		}
	}
	for name, values := range want {
		require.Equal(t, values, schemas.in(name).texts("enum"), name)
	}
	each(schemas, "", func(at string, o tree) {
		if meanings := o.in("x-enumDescriptions"); meanings != nil {
			require.ElementsMatch(t, o.texts("enum"), meanings.names(), at)
		}
	})
	require.Equal(t, job.Languages, openAPI().in("components", "headers", "Content-Language", "schema").texts("enum"))
}

var eventNames = []string{
	job.EventCreated, job.EventQueued, job.EventAssigned, job.EventRunning, job.EventSucceeded, job.EventFailed,
	job.EventCanceled, job.EventRetried, job.EventLeaseExpired, job.EventRetriesExhausted, job.EventEmitted,
	job.EventBatchCompleted, job.EventBulkCompleted, job.EventWebhookDisabled, job.EventWebhookTest,
}
