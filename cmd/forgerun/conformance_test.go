package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

var terminal = []string{"COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT", "COMPLETED_WITH_ERRORS"}

func requireConforming(t *testing.T, schema *jsonschema.Schema, text string) {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(value), text)
	d := value.(map[string]any)
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-`), d["jobId"], "section 6.8: UUIDv7")
	require.Contains(t, d, "jobStatus")
	require.Regexp(t, regexp.MustCompile(`Z$`), d["submittedAt"], "section 3.4")
	require.Equal(t, slices.Contains(terminal, d["jobStatus"].(string)), d["completedAt"] != nil, "section 3.5: %s", text)
	require.Equal(t, d["retryable"] == true, d["retryAfter"] != nil, "section 3.7: %s", text)
	if d["type"] != nil {
		require.NotEqual(t, "about:blank", d["type"], "section 6.1")
		require.NotEmpty(t, d["detail"], "section 4.1")
	}
}

// Outcome documents of every work kind conform to the draft, in HTTP responses and in streams.
// Promise: draft 3.1
func TestOutcomeDocumentsConformToTheDraft(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	schema := compiler.MustCompile("../../job/testdata/async-job-problem-details.schema.json") // section 8
	s, api, u := newWorking(t, env{"FORGERUN_WORKER_CONCURRENCY": "20", "FORGERUN_MAX_RUNTIME": "1s"})
	var items, ids []string
	for _, kind := range job.Kinds() {
		if kind == job.PayloadInvalid {
			continue
		}
		items = append(items, execute(string(kind)))
		ids = append(ids, u.submit(api, execute(string(kind)), "X-Correlation-ID", "order-17", "Accept-Language", "de-CH, fr;q=0.5"))
	}
	canceled := u.submit(api, farAway)
	waiting := u.call(api, "GET", "/v1/jobs/"+canceled, "", "Accept", "application/problem+json")
	require.Equal(t, "application/json", waiting.header.Get("Content-Type"), "section 11.7: nothing has failed")
	requireConforming(t, schema, waiting.body)
	u.call(api, "POST", "/v1/jobs/"+canceled+"/cancel", "")
	batch := u.submitBatch(api, `{"jobs":[`+strings.Join(append(items, `{"type":"NO_SUCH_TYPE"}`), ",")+`]}`)
	s.awaitFinal(append(ids, canceled)...)

	for _, id := range append(ids, canceled) {
		path := "/v1/jobs/" + id
		full := u.get(api, id)
		draft := u.call(api, "GET", path, "", "Accept", "application/problem+json")
		attempt := u.call(api, "GET", path+"/attempts/1", "")
		require.Equal(t, attempt.body, draft.body, "the job and its attempt have the same document")
		require.Equal(t, http.StatusOK, draft.status, "section 11.1")
		requireConforming(t, schema, draft.body)
		require.Equal(t, id, draft.text("jobId"), "section 3.2: the id in Location")
		require.Equal(t, path+"/attempts/1", draft.text("instance"), "section 6.1")
		frames := u.stream(api, path+"/events", "").rest()
		last := frames[len(frames)-1]
		require.Equal(t, strings.TrimSpace(draft.body), last.data, "section 5.4: the same document")
		require.Equal(t, map[string]any{
			"workKind": full.text("work_kind"), "durationMs": full.value("definition.duration_ms"),
			"expectedOutcome": full.text("definition.expected_outcome"),
		}, answer{body: last.data}.value("scenario"), "the last event has the scenario, too")
		if full.text("state") != "FAILED" {
			require.Equal(t, "application/json", draft.header.Get("Content-Type"))
			continue
		}
		require.Equal(t, "job-failed", last.event)
		require.Equal(t, "application/problem+json", draft.header.Get("Content-Type"))
		failure, err := json.Marshal(full.value("failure"))
		require.NoError(t, err)
		require.JSONEq(t, draft.body, string(failure))
		require.Equal(t, "order-17", draft.text("correlationId"), "section 3.9")
		require.NotEmpty(t, draft.text("processingStage"), "section 3.8")
		require.Equal(t, "de", draft.text("language"))
		if draft.text("code") == string(job.CodeDependencyTimeout) {
			require.Equal(t, "processing", draft.text("processingStage"))
		}
		for _, a := range []answer{draft, attempt, full, u.call(api, "GET", path+"/report", "")} {
			require.Equal(t, "de", a.header.Get("Content-Language"), "appendix F.5")
			wait := ""
			if after, ok := draft.value("retryAfter").(float64); ok {
				wait = strconv.Itoa(int(after))
			}
			require.Equal(t, wait, a.header.Get("Retry-After"), "section 5.1: %s", a.body)
		}
		u.expect(api, http.StatusOK, "GET", strings.TrimPrefix(draft.text("type"), api.url), "") // section 10.3: the type URI leads to a page
	}

	u.awaitBatch(api, batch)
	document := u.call(api, "GET", "/v1/batches/"+batch, "", "Accept", "application/problem+json")
	requireConforming(t, schema, document.body)
	require.Equal(t, "COMPLETED_WITH_ERRORS", document.text("jobStatus"))
	require.Contains(t, document.header.Get("Link"), "/rels/batch-jobs")
	for _, a := range []answer{document, u.get(api, ids[0])} {
		for _, rel := range regexp.MustCompile(`rel="([^"]*)"`).FindAllStringSubmatch(a.header.Get("Link"), -1) {
			require.True(t, rel[1] == "status" || strings.HasPrefix(rel[1], api.url+"/rels/"), "section 6.5: registered, or a URI: %s", rel[1])
		}
	}
}

var outcomes = env{"FORGERUN_OUTCOME_STREAM": "forgerun:outcomes", "FORGERUN_PUBLIC_URL": "http://forgerun.test"}

func (s *stack) outcomeEntries() map[string][]redis.XMessage {
	s.t.Helper()
	entries, err := s.rdb.XRange(s.ctx(), "forgerun:outcomes", "-", "+").Result()
	require.NoError(s.t, err)
	found := map[string][]redis.XMessage{}
	for _, e := range entries {
		key := e.Values["key"].(string)
		found[key] = append(found[key], e)
	}
	return found
}

// The outcome stream contains the outcome document of each attempt. The document's `instance` is the URL of the attempt.
// Promise: draft 5.2, 6.6
// Promise: draft F.5
func TestOutcomeStream(t *testing.T) {
	s, api, u := newWorking(t, outcomes)
	good, bad := u.submit(api, execute("SUCCESS_FAST")), u.submit(api, execute("RETRY_ON_FAIL", `"auto_retry":true`), "Accept-Language", "fr")
	late := u.submit(api, farAway)
	require.Equal(t, 200, u.call(api, "POST", "/v1/jobs/"+late+"/cancel", "").status)
	s.await("SUCCEEDED", good, bad)
	var entries map[string][]redis.XMessage
	eventually(t, "all outcomes are published", func() bool {
		entries = s.outcomeEntries()
		return len(entries[good]) > 0 && len(entries[bad]) > 1 && len(entries[late]) > 0
	})
	require.Len(t, entries, 3)
	for id, statuses := range map[string]string{good: "COMPLETED", bad: "FAILED COMPLETED", late: "CANCELLED"} {
		require.Len(t, entries[id], len(strings.Fields(statuses)))
		for i, status := range strings.Fields(statuses) {
			entry := entries[id][i].Values
			streamed := answer{body: entry["value"].(string)}
			require.Equal(t, []string{id, status}, []string{streamed.text("jobId"), streamed.text("jobStatus")})
			path, public := strings.CutPrefix(streamed.text("instance"), outcomes["FORGERUN_PUBLIC_URL"])
			require.True(t, public, "the address is absolute")
			shown := u.call(api, "GET", path, "", "Accept", "application/problem+json")
			require.Equal(t, shown.header.Get("Content-Type"), entry["content-type"])
			require.Equal(t, shown.value("scenario"), streamed.value("scenario"))
			if status == "FAILED" {
				require.Equal(t, "fr", shown.text("language"))
				require.Equal(t, []any{"en", "en"}, []any{streamed.text("language"), entry["content-language"]})
				require.Equal(t, "A transient fault ended this attempt.", streamed.text("detail"))
			}
		}
	}
	s.checkInvariants()
}

// Every outcome is published, even after the leader dies or Redis loses its data.
func TestOutcomeStreamIsRepaired(t *testing.T) {
	s, first, u := newWorking(t, outcomes)
	ids := u.submitMany(first, 50, execute("PAYLOAD_SMALL"))
	first.kill()
	s.endLead()
	api := s.startAPI()
	ids = append(ids, u.submitMany(api, 50, execute("PAYLOAD_SMALL"))...)
	s.await("SUCCEEDED", ids...)
	eventually(t, "all outcomes are published", func() bool { return len(s.outcomeEntries()) == len(ids) })
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err()) // simulate a crash in which Redis loses its data
	eventually(t, "all outcomes are published again", func() bool { return len(s.outcomeEntries()) == len(ids) })
	s.checkInvariants()
}
