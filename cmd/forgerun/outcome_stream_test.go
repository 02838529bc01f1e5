package main

import (
	"encoding/json"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var outcomes = env{"FORGERUN_OUTCOME_STREAM": "forgerun:outcomes", "FORGERUN_PUBLIC_URL": "http://forgerun.test"}

// outcomeEntries reads the stream: the documents by job.
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

// Each attempt's outcome is in the stream, as the resource of the attempt shows it.
func TestOutcomeStream(t *testing.T) {
	t.Parallel()
	s := newStack(t, outcomes)
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)
	good, bad := u.submit(api, execute("SUCCESS_FAST")), u.submit(api, execute("RETRY_ON_FAIL", `"auto_retry":true`), "Accept-Language", "fr")
	late := u.submit(api, `{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2099-01-01T00:00:00Z"}`)
	require.Equal(t, 200, u.call(api, "POST", "/v1/jobs/"+late+"/cancel", "").status)
	s.await("SUCCEEDED", good, bad)
	var entries map[string][]redis.XMessage
	eventually(t, "all outcomes are published", func() bool {
		entries = s.outcomeEntries()
		return len(entries[good]) > 0 && len(entries[bad]) > 1 && len(entries[late]) > 0
	})
	require.Len(t, entries, 3)
	kinds := map[string]string{}
	for job, list := range entries {
		for _, e := range list {
			var document struct{ Instance, JobStatus string }
			value := e.Values["value"].(string)
			require.NoError(t, json.Unmarshal([]byte(value), &document))
			a := u.call(api, "GET", document.Instance, "", "Accept", e.Values["content-type"].(string))
			require.Equal(t, 200, a.status, a.body)
			require.Equal(t, job, answer{body: value}.text("jobId"))
			requireTold(t, u.call(api, "GET", document.Instance, "", "Accept", "application/problem+json"), e)
			kinds[document.JobStatus] = e.Values["content-type"].(string)
		}
	}
	require.Equal(t, map[string]string{
		"COMPLETED": "application/json", "CANCELLED": "application/json", "FAILED": "application/problem+json",
	}, kinds)
	s.checkInvariants()
}

// requireTold compares an entry with the resource of its attempt: it is the same
// but for the texts, which are English and say so.
func requireTold(t *testing.T, resource answer, entry redis.XMessage) {
	t.Helper()
	var shown, told map[string]any
	require.NoError(t, json.Unmarshal([]byte(resource.body), &shown))
	require.NoError(t, json.Unmarshal([]byte(entry.Values["value"].(string)), &told))
	if shown["detail"] == nil {
		require.NotContains(t, entry.Values, "content-language")
	} else {
		require.Equal(t, "fr", shown["language"])
		require.Equal(t, []any{"en", "en"}, []any{told["language"], entry.Values["content-language"]})
		require.Equal(t, "A transient fault ended this attempt.", told["detail"])
		for _, text := range []string{"title", "detail", "language"} {
			require.NotEqual(t, shown[text], told[text], text)
			delete(shown, text)
			delete(told, text)
		}
	}
	require.Equal(t, shown, told)
	require.NotEmpty(t, told["scenario"].(map[string]any)["workKind"])
}

// Outcomes that were not published, because Redis was away or the leader died,
// are published later; none is missing.
func TestOutcomeStreamIsRepaired(t *testing.T) {
	t.Parallel()
	s := newStack(t, outcomes)
	first := s.startLeader()
	s.startWorker()
	u := s.newUser(first)
	ids := u.submitMany(first, 50, execute("PAYLOAD_SMALL"))
	first.kill()
	api := s.startAPI()
	ids = append(ids, u.submitMany(api, 50, execute("PAYLOAD_SMALL"))...)
	s.await("SUCCEEDED", ids...)
	eventually(t, "all outcomes are published", func() bool { return len(s.outcomeEntries()) == len(ids) })
	require.NoError(t, s.rdb.FlushAll(t.Context()).Err()) // as a crash loses what Redis has not written
	eventually(t, "they are published again", func() bool { return len(s.outcomeEntries()) == len(ids) })
	s.checkInvariants()
}

// Without the setting nothing is kept for a stream.
func TestNoOutcomeStream(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	api := s.startLeader()
	s.startWorker()
	u := s.newUser(api)
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))
	require.Zero(t, s.count(`SELECT count(*) FROM outcome_outbox`))
}
