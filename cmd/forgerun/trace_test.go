package main

import (
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// newTrace gives the id of a new trace and the traceparent of a client that
// records it.
func newTrace() (id, header string) {
	id = strings.ReplaceAll(uuid.NewString(), "-", "")
	return id, "00-" + id + "-00f067aa0ba902b7-01"
}

// The ways to the spans of an attempt, below the request that caused it.
const (
	enqueued  = " > api enqueue job"
	processed = enqueued + " > worker process job"
)

func attemptBelow(request string) []string {
	return []string{
		request + enqueued, request + processed, request + processed + " > worker assign job > worker commit claim > sql",
		request + processed + " > worker run job",
		request + processed + " > worker report job > worker commit finish > sql",
	}
}

// One trace leads from the submission through the queue and the worker to the
// webhook, over three processes, and on into the receiver.
func TestTraceOfAJob(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, hooks, c.env)
	api, _, u := s.startDelivering()
	r := newReceiver(t, nil)
	u.subscribe(api, r.url, "job.succeeded")
	trace, header := newTrace()
	id := u.submit(api, execute("SUCCESS_FAST", `"params":{"password":"planted-in-params"}`), "traceparent", header)
	s.await("SUCCEEDED", id)

	const submit = "api POST /v1/jobs > api submit job"
	tree := c.requireTree(trace, append(attemptBelow(submit),
		submit+" > api commit insert > sql", "api POST /v1/jobs > webhooks deliver event > webhooks commit record > sql")...)
	root := tree["api POST /v1/jobs"][0]
	require.Equal(t, "00f067aa0ba902b7", root.parent, "the client's span is above all")
	require.Equal(t, "SERVER", root.kind)
	for path, kind := range map[string]string{submit + enqueued: "PRODUCER", submit + processed: "CONSUMER",
		"api POST /v1/jobs > webhooks deliver event": "CLIENT"} {
		require.Len(t, tree[path], 1, path)
		require.Equal(t, kind, tree[path][0].kind, path)
		require.Equal(t, id, tree[path][0].attributes["forgerun.job_id"], path)
		require.False(t, tree[path][0].failed, path)
	}
	run := tree[submit+processed+" > worker run job"][0]
	require.Equal(t, "SUCCESS_FAST", run.attributes["forgerun.work_kind"])
	require.Equal(t, "SUCCEEDED", run.attributes["forgerun.state"])
	sent := r.await("the event", func(d received) bool { return d.job() == id })
	deliver := tree["api POST /v1/jobs > webhooks deliver event"][0]
	require.Equal(t, "00-"+trace+"-"+deliver.id+"-01", sent.header.Get("Traceparent"), "the receiver can go on with the trace")
	c.checkSpans(append(s.knownSecrets(), "planted-in-params"))
	api.logged("job transition", `"action":"submit"`, `"trace_id":"`+trace+`"`)
}

// A retry is a trace of its own that points to the submission's; an automatic
// one goes on in the submission's.
func TestTraceOfARetry(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, c.env)
	api := s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	first, header := newTrace()
	id := u.submit(api, execute("RETRY_ON_FAIL"), "traceparent", header)
	s.await("FAILED", id)
	second, header := newTrace()
	a := u.call(api, "POST", "/v1/jobs/"+id+"/retry", "", "traceparent", header)
	require.Equal(t, http.StatusOK, a.status, a.body)
	s.await("SUCCEEDED", id)

	const retry = "api POST /v1/jobs/:id/retry > api retry job"
	tree := c.requireTree(second, append(attemptBelow(retry), retry+" > api commit retry > sql")...)
	require.Contains(t, tree[retry][0].links, first)
	require.Equal(t, "2", tree[retry+processed][0].attributes["forgerun.attempt"])
	failed := c.requireTree(first, attemptBelow("api POST /v1/jobs > api submit job")...)
	require.Len(t, failed["api POST /v1/jobs > api submit job"+processed], 1, "the second attempt is not in the first one's trace")
	run := failed["api POST /v1/jobs > api submit job"+processed+" > worker run job"][0]
	require.Equal(t, "FAILED", run.attributes["forgerun.state"])
	require.False(t, run.failed, "a job that fails as it should is no error of the service")

	auto, header := newTrace()
	id = u.submit(api, execute("RETRY_ON_FAIL", `"auto_retry":true`), "traceparent", header)
	s.await("SUCCEEDED", id)
	c.requireTree(auto, "api POST /v1/jobs > api submit job"+processed+
		" > worker report job > worker enqueue job > worker process job > worker report job > worker commit finish > sql")
	c.checkSpans(s.knownSecrets())
}

// A cancel is a trace of its own that points to the job's, and ends the work in
// that one.
func TestTraceOfACancel(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, c.env, env{"FORGERUN_TIME_SCALE": "1000"})
	api := s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	submitted, header := newTrace()
	id := u.submit(api, execute("SUCCESS_SLOW"), "traceparent", header)
	s.await("RUNNING", id)
	canceled, header := newTrace()
	a := u.call(api, "POST", "/v1/jobs/"+id+"/cancel", "", "traceparent", header)
	require.Equal(t, http.StatusOK, a.status, a.body)

	const cancel = "api POST /v1/jobs/:id/cancel > api cancel job"
	tree := c.requireTree(canceled, cancel+" > api commit cancel > sql")
	require.Contains(t, tree[cancel][0].links, submitted)
	const run = "api POST /v1/jobs > api submit job" + processed + " > worker run job"
	tree = c.requireTree(submitted, run)
	require.Equal(t, "CANCELED", tree[run][0].attributes["forgerun.state"])
	require.Contains(t, tree[run][0].events, "canceled")
	require.False(t, tree[run][0].failed)
}

// The life of a key: created, renewed, revoked, and then refused.
func TestTraceOfAKey(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, c.env)
	api := s.startAPI()
	u := s.newUser(api)
	keys := "/v1/clients/" + u.id + "/keys"
	for _, step := range []struct {
		method, path, route string
		body                func() string
		status              int
	}{
		{"POST", keys + "/renew", "/v1/clients/:id/keys/renew", func() string { return "" }, http.StatusOK},
		{"POST", keys + "/revoke", "/v1/clients/:id/keys/revoke", func() string { return `{"key_id":"` + keyID(u.key) + `"}` }, http.StatusOK},
		{"GET", "/v1/jobs", "/v1/jobs", func() string { return "" }, http.StatusForbidden},
	} {
		trace, header := newTrace()
		a := u.call(api, step.method, step.path, step.body(), "traceparent", header)
		require.Equal(t, step.status, a.status, a.body)
		if renewed := a.text("api_key"); renewed != "" {
			s.secret(renewed)
			u.key = renewed
		}
		root := "api " + step.method + " " + step.route
		var request span
		if step.status == http.StatusOK {
			request = c.requireTree(trace, root)[root][0]
		} else { // who is refused does not decide what is recorded: a trace of its own, that points to the client's
			request = c.await("the refused request", func(x span) bool { return slices.Contains(x.links, trace) })
			require.Empty(t, request.parent)
		}
		require.Equal(t, u.id, request.attributes["forgerun.client_id"])
		require.Equal(t, strconv.Itoa(step.status), request.attributes["http.response.status_code"], step.path)
		if step.method == "POST" {
			c.requireTree(trace, root+" > sql")
			require.NotEmpty(t, request.attributes["forgerun.key_id"], step.path)
		}
	}
	created := c.await("the first key", func(x span) bool { return x.name == "POST /v1/clients/:id/keys" })
	require.Equal(t, u.id, created.attributes["forgerun.client_id"])
	c.requireTree(created.trace, "api POST /v1/clients/:id/keys > sql")
	c.checkSpans(s.knownSecrets())
}

// A job whose task was lost, and one whose worker died, stay in their traces.
func TestTraceSurvivesRepairs(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, c.env, quickLease)
	api := s.startLeader()
	u := s.newUser(api)
	lost, header := newTrace()
	id := u.submit(api, execute("SUCCESS_FAST"), "traceparent", header)
	c.requireTree(lost, "api POST /v1/jobs > api submit job"+enqueued)
	require.NoError(t, s.rdb.FlushAll(s.ctx()).Err())
	w := s.startWorker(env{"FORGERUN_TIME_SCALE": "1000"})
	s.await("RUNNING", id)
	w.kill()
	s.await("FAILED", id)
	rescue := "api POST /v1/jobs > api rescue job"
	rescued := c.requireTree(lost, rescue, "api POST /v1/jobs"+enqueued)[rescue][0]
	require.Equal(t, id, rescued.attributes["forgerun.job_id"])
	require.Equal(t, "FAILED", rescued.attributes["forgerun.state"])

	s.startWorker()
	again, header := newTrace()
	a := u.call(api, "POST", "/v1/jobs/"+id+"/retry", "", "traceparent", header)
	require.Equal(t, http.StatusOK, a.status, a.body)
	s.await("SUCCEEDED", id)
	c.requireTree(again, attemptBelow("api POST /v1/jobs/:id/retry > api retry job")...)
	c.checkSpans(s.knownSecrets())
}

// What the client does not record is not recorded here either; without a
// collector there are no traces, and nothing else changes.
func TestNoTraceUnlessWanted(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, c.env, env{"FORGERUN_ADMIN_TOKEN": "an-operators-long-token"})
	api := s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	unwanted, header := newTrace()
	id := u.submit(api, execute("SUCCESS_FAST"), "traceparent", header[:len(header)-1]+"0")
	s.await("SUCCEEDED", id)
	for _, malformed := range []string{"00-" + unwanted, header + "-x", strings.ToUpper(header), strings.Repeat("0", 5000)} {
		id := u.submit(api, execute("SUCCESS_FAST"), "traceparent", malformed)
		s.await("SUCCEEDED", id)
	}
	wanted, header := newTrace()
	id = u.submit(api, execute("SUCCESS_FAST"), "traceparent", header)
	s.await("SUCCEEDED", id)
	c.requireTree(wanted, attemptBelow("api POST /v1/jobs > api submit job")...)
	require.Empty(t, c.paths(unwanted), "spans leave a process in order: none of the earlier ones is still to come")

	silent := newStack(t)
	quiet := silent.startAPI()
	silent.startWorker(c.env)
	v := silent.newUser(quiet)
	id = v.submit(quiet, execute("SUCCESS_FAST"))
	silent.await("SUCCEEDED", id)
	require.Zero(t, silent.count(`SELECT count(*) FROM jobs WHERE traceparent IS NOT NULL`))
}

// The last spans leave a process that is told to end, whoever is still being
// served on the admin listener.
func TestTheLastSpansAreSent(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	s := newStack(t, c.env, env{"OTEL_BSP_SCHEDULE_DELAY": "600000"}) // by themselves they leave after the test
	api := s.startAPI()
	u := s.newUser(api)
	admin := api.logged("admin listening")["address"].(string)
	get := func(profile string) (string, error) {
		response, err := http.Get("http://" + admin + "/debug/pprof/" + profile)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		content, err := io.ReadAll(response.Body)
		return string(content), err
	}
	profiled := make(chan error, 1)
	go func() {
		_, err := get("profile?seconds=60")
		profiled <- err
	}()
	eventually(t, "the profile is being taken", func() bool {
		stacks, err := get("goroutine?debug=1")
		return err == nil && strings.Contains(stacks, "pprof.Profile+")
	})
	last, header := newTrace()
	u.submit(api, execute("SUCCESS_FAST"), "traceparent", header)
	api.terminate()
	told := time.Now()
	require.Zero(t, api.exitCode())
	require.Less(t, time.Since(told), 30*time.Second, "before the profile is complete")
	require.Error(t, <-profiled, "it was cut off")
	c.requireTree(last, "api POST /v1/jobs > api submit job")
	require.NotContains(t, api.log.String(), "not all traces were sent")
}

// A collector that is away or hangs costs nothing but the traces.
func TestCollectorIsAway(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_BSP_SCHEDULE_DELAY": "50"})
	api := s.startAPI()
	w := s.startWorker()
	u := s.newUser(api)
	s.awaitFinal(u.submitMany(api, 50, execute("SUCCESS_FAST"))...)
	api.logged("spans could not be sent")
	for _, p := range []*proc{w, api} {
		p.terminate()
		require.Zero(t, p.exitCode())
	}
	require.LessOrEqual(t, strings.Count(api.log.String(), "spans could not be sent"), 2, "one line a minute")
}
