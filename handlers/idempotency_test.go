package handlers

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

type onceKey struct {
	client     job.ID
	scope, key string
}

type onceAnswer struct {
	job.Answer
	hash [32]byte
}

// fakeOnce remembers answers.
type fakeOnce struct {
	mu    sync.Mutex
	known map[onceKey]onceAnswer
	err   error // of the commit
}

func (f *fakeOnce) Once(ctx context.Context, key job.RequestKey, do func(context.Context) (job.Answer, error)) (job.Answer, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := onceKey{key.ClientID, key.Scope, key.Key}
	if known, ok := f.known[k]; ok {
		if known.hash != key.Hash {
			return job.Answer{}, false, job.Errorf(job.CodeIdempotencyConflict, "The key was used for another request.")
		}
		return known.Answer, true, nil
	}
	a, err := do(ctx)
	if err == nil {
		err = f.err
	}
	if err != nil {
		return job.Answer{}, false, err
	}
	f.known[k] = onceAnswer{a, key.Hash}
	return a, false, nil
}

const longKey = "0123456789abcdef0123456789abcdef"

// Every POST gives a repetition its first answer; submissions of jobs and batches
// have a way of their own, and fixtures are submissions.
func TestEveryPostTakesAnIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	tried := 0
	for _, rt := range w.server.routes() {
		if rt.method != post || slices.Contains([]string{"submit", "submit_batch", "make_fixtures"}, rt.action) {
			continue
		}
		tried++
		first := w.try(rt, "Idempotency-Key", rt.action+longKey)
		require.Equal(t, rt.success, first.StatusCode, "%s: %s", rt.path, first.text)
		require.Empty(t, first.Header.Get(headerReplayed), rt.path)
		again := w.try(rt, "Idempotency-Key", rt.action+longKey)
		require.Equal(t, rt.success, again.StatusCode, rt.path)
		require.Equal(t, "true", again.Header.Get(headerReplayed), rt.path)
		require.NotEqual(t, first.Header.Get("X-Request-Id"), again.Header.Get("X-Request-Id"), rt.path)
		for _, name := range keptHeaders {
			require.Equal(t, first.Header.Values(name), again.Header.Values(name), "%s: %s", rt.path, name)
		}
		if !strings.Contains(first.text, "secret\":\"") && !strings.Contains(first.text, `"api_key":"`) {
			require.Equal(t, first.text, again.text, rt.path)
		}
	}
	require.Equal(t, 25, tried)
	for _, known := range w.once.known {
		require.NotContains(t, string(known.Body), testSecret)
		require.NotContains(t, string(known.Body), "frk_secret")
	}
}

func TestRepetitionsShowNoSecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	require.Contains(t, w.send(post, clientPath("/keys"), "", "Idempotency-Key", "k").text, `"api_key":"frk_secret"`)
	again := w.send(post, clientPath("/keys"), "{}", "Idempotency-Key", "k")
	require.Equal(t, 201, again.StatusCode)
	require.Contains(t, again.text, `{"api_key":null,"key_id":"abc",`)
	rotate := webhookSelf + "/rotate-secret"
	require.Contains(t, w.send(post, rotate, "", "Idempotency-Key", "r").text, testSecret)
	require.Contains(t, w.send(post, rotate, "", "Idempotency-Key", "r").text, `"secret":null`)
}

func TestWhatAKeyIsComparedBy(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	cancel := jobPath(jobID) + "/cancel"
	require.Equal(t, 200, w.send(post, cancel, "", "Idempotency-Key", "k").StatusCode)
	for _, body := range []string{"", "{}", " { } "} {
		require.Equal(t, "true", w.send(post, cancel, body, "Idempotency-Key", `"k"`).Header.Get(headerReplayed))
	}
	for _, path := range []string{jobPath(jobID) + "/retry", jobPath(webhookID) + "/cancel"} {
		w.send(post, path, "", "Idempotency-Key", "k").requireProblem(t, job.CodeIdempotencyConflict)
	}
	revoke := clientPath("/keys/revoke")
	require.Equal(t, 200, w.send(post, revoke, `{"key_id":"a"}`, "Idempotency-Key", "r").StatusCode)
	w.send(post, revoke, `{"key_id":"b"}`, "Idempotency-Key", "r").requireProblem(t, job.CodeIdempotencyConflict)
	require.Equal(t, "true", w.send(post, revoke, ` {"key_id":"\u0061"}`, "Idempotency-Key", "r").Header.Get(headerReplayed))

	for _, key := range []string{"", "a b", "ä", strings.Repeat("k", 256), `"open`} {
		w.send(post, cancel, "", "Idempotency-Key", key).requireProblem(t, job.CodeMalformed)
	}
	other := w.send(post, cancel, "", "Idempotency-Key", "k", "Authorization", "Bearer "+otherKey)
	require.Empty(t, other.Header.Get(headerReplayed), "another client's key is another one")
}

func TestRefusalsLeaveTheKeyFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	retry := jobPath(jobID) + "/retry"
	change := w.jobs.change
	w.jobs.change = func(context.Context, job.ID, job.ID) (job.Change, error) {
		return job.Change{}, job.Errorf(job.CodeConflict, "No.")
	}
	w.send(post, retry, "", "Idempotency-Key", "k").requireProblem(t, job.CodeConflict)
	w.jobs.change = change
	w.once.err = job.Errorf(job.CodeStorageUnavailable, "The outcome is unknown.")
	a := w.send(post, webhookSelf+"/test", "", "Idempotency-Key", "t")
	a.requireProblem(t, job.CodeStorageUnavailable)
	require.Empty(t, a.Header.Get("Location"), "of an answer that was not committed")
	w.once.err = nil
	a = w.send(post, retry, "", "Idempotency-Key", "k")
	require.Equal(t, 200, a.StatusCode)
	require.Empty(t, a.Header.Get(headerReplayed))
}

func TestKeysWithoutCredentialsAreLong(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, path := range []string{"/v1/clients", clientPath("/keys")} {
		short := w.send(post, path, "", "Authorization", "-", "Idempotency-Key", longKey[1:])
		short.requireProblem(t, job.CodeMalformed)
		require.Contains(t, short.text, "32")
		require.Equal(t, 201, w.send(post, path, "", "Idempotency-Key", path, "Authorization", "Bearer "+adminKey).StatusCode)
	}
	require.Equal(t, 201, w.send(post, "/v1/clients", "", "Authorization", "-", "Idempotency-Key", longKey).StatusCode)
	require.Equal(t, "true", w.send(post, "/v1/clients", "", "Authorization", "-", "Idempotency-Key", longKey).Header.Get(headerReplayed))
	operators := w.send(post, "/v1/clients", "", "Idempotency-Key", longKey, "Authorization", "Bearer "+adminKey)
	require.Empty(t, operators.Header.Get(headerReplayed), "the operator's keys are apart")
}

func TestExpiredKeysRenewAndNothingElse(t *testing.T) {
	t.Parallel()
	w := newWorld(t).full()
	keys := clientPath("/keys")
	require.Equal(t, 200, w.send(post, keys+"/renew", "", "Authorization", "Bearer renewable").StatusCode)
	require.True(t, w.clients.caller.Expired)
	for _, path := range []string{keys, keys + "/revoke", "/v1/jobs", "/v1/clients"} {
		w.send(post, path, "", "Authorization", "Bearer renewable").requireProblem(t, job.CodeTokenExpired)
	}
	w.send(post, keys+"/renew", "", "Authorization", "Bearer expired").requireProblem(t, job.CodeTokenExpired)
}
