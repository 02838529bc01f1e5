package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/job"
)

// fake is a ForgeRun in memory, enough of it for a tour. It has no goroutines
// but those of deliveries: each job carries the plan of its future, and a
// request first lets happen what has become due. Its catalogue is package job's, not the simulator's.
type fake struct {
	mu      sync.Mutex
	scale   float64
	flaws   flaws
	down    bool
	busy    int // so many more requests are answered with 503
	clients int
	fakeState

	receiver   http.RoundTripper // reaches the receiver of webhooks
	hooks      map[string]*fakeHook
	deliveries map[*fakeJob][]*fakeDelivery
	sending    sync.WaitGroup
}

// fakeState is what survives a restart: all but webhooks, which no kind needs
// across one.
type fakeState struct {
	Jobs map[string]*fakeJob
	Keys map[string]string // idempotency key -> job id
}

// flaws are ways in which the fake is not perfect.
type flaws struct {
	tamper        func(what string, j *fakeJob, body map[string]any) // edits answers: receipt, cancel, retry, job, report
	early         time.Duration                                      // scheduled jobs run that much too soon
	late          time.Duration                                      // or too late
	forgetKeys    bool                                               // each submission makes a job
	oneKey        bool                                               // all submissions of a kind are one job
	endlessRetry  bool
	refuseRetry   bool
	ignoreCancel  bool // answers CANCELED and goes on
	secondCancel  bool // a canceled job is canceled again
	acceptInvalid bool
	noLocation    bool
	silentReplay  bool
	placeRefused  bool   // a refusal names a job
	stuck         string // a kind that never ends
	holdRunning   string // a kind that runs until it is canceled: no fault, but no race either
	quick         bool   // work takes no time
	closed        bool   // no open registration
	webhooks      webhookFlaws
}

type fakeJob struct {
	ID, Type, Kind, State    string
	Callback, CorrelationID  string
	Attempt                  int
	Created, Updated         time.Time
	ExecutionAt              *time.Time
	Started, Finished        *time.Time
	Events                   []fakeEvent
	Plan                     []fakeStep
	CancelIgnored, Exhausted bool
}

type fakeStep struct {
	At   time.Time
	Next string
}

type fakeEvent struct {
	ID, Name, Prev, Next string
	Attempt              int
	At                   time.Time
}

const (
	fakeKey         = "frk_test"
	fakeMaxAttempts = 4
	fakeLimit       = 120 * time.Second
)

func newFake(scale float64) *fake {
	return &fake{
		scale: scale, fakeState: fakeState{Jobs: map[string]*fakeJob{}, Keys: map[string]string{}},
		receiver: http.DefaultTransport, hooks: map[string]*fakeHook{}, deliveries: map[*fakeJob][]*fakeDelivery{},
	}
}

func (f *fake) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/clients", f.createClient)
	mux.HandleFunc("POST /v1/clients/{id}/keys", f.createKey)
	mux.HandleFunc("POST /v1/jobs", f.authed(f.submit))
	mux.HandleFunc("GET /v1/jobs", f.authed(f.list))
	mux.HandleFunc("GET /v1/jobs/{id}", f.authed(f.withJob(f.get)))
	mux.HandleFunc("GET /v1/jobs/{id}/report", f.authed(func(w http.ResponseWriter, r *http.Request) {
		attempt, _ := strconv.Atoi(r.URL.Query().Get("attempt"))
		f.withJob(func(w http.ResponseWriter, j *fakeJob) { f.report(w, j, attempt) })(w, r)
	}))
	mux.HandleFunc("GET /v1/jobs/{id}/result", f.authed(f.withJob(f.result)))
	mux.HandleFunc("POST /v1/jobs/{id}/cancel", f.authed(f.withJob(f.cancel)))
	mux.HandleFunc("POST /v1/jobs/{id}/retry", f.authed(f.withJob(f.retry)))
	f.webhookRoutes(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.busy > 0 {
			f.busy--
			w.Header().Set("Retry-After", "1")
			f.problem(w, 503, "RFA_STORAGE_UNAVAILABLE")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// RoundTrip makes the fake a transport without a network, so that a tour runs
// on virtual time.
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	down := f.down
	f.mu.Unlock()
	if down {
		return nil, fmt.Errorf("connection refused")
	}
	rec := httptest.NewRecorder()
	f.handler().ServeHTTP(rec, r)
	return rec.Result(), nil
}

func (f *fake) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advanceAll()
	f.down = true
}

// start comes back: what fell due meanwhile happens from now on.
func (f *fake) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = false
	now := time.Now()
	for _, j := range f.Jobs {
		if len(j.Plan) > 0 && j.Plan[0].At.Before(now) {
			shift := now.Sub(j.Plan[0].At)
			for i := range j.Plan {
				j.Plan[i].At = j.Plan[i].At.Add(shift)
			}
		}
	}
}

func (f *fake) advanceAll() {
	for _, j := range f.Jobs {
		f.advance(j)
	}
}

func (f *fake) authed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+fakeKey {
			f.problem(w, 401, "RFA_AUTH_INVALID_CREDENTIALS")
			return
		}
		next(w, r)
	}
}

func (f *fake) withJob(next func(http.ResponseWriter, *fakeJob)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		j := f.Jobs[r.PathValue("id")]
		if j == nil {
			f.problem(w, 404, "RFA_JOB_NOT_FOUND")
			return
		}
		f.advance(j)
		next(w, j)
	}
}

func (f *fake) createClient(w http.ResponseWriter, _ *http.Request) {
	if f.flaws.closed {
		f.problem(w, 403, "RFA_AUTH_FORBIDDEN")
		return
	}
	f.clients++
	f.json(w, 201, map[string]any{"client_id": uuid.NewString()})
}

func (f *fake) createKey(w http.ResponseWriter, _ *http.Request) {
	f.json(w, 201, map[string]any{"api_key": fakeKey, "key_id": "test"})
}

func (f *fake) submit(w http.ResponseWriter, r *http.Request) {
	var s struct {
		Type        string     `json:"type"`
		WorkKind    string     `json:"work_kind"`
		ExecutionAt *time.Time `json:"execution_at"`
		Callback    string     `json:"callback"`

		CorrelationID string `json:"correlation_id"`
	}
	if json.NewDecoder(r.Body).Decode(&s) != nil || !job.Kind(s.WorkKind).Valid() ||
		s.WorkKind == "PAYLOAD_INVALID" && !f.flaws.acceptInvalid ||
		s.ExecutionAt != nil && !s.ExecutionAt.After(time.Now()) {
		if f.flaws.placeRefused {
			w.Header().Set("Location", "/v1/jobs/1")
		}
		f.problem(w, 400, "RFA_JOB_VALIDATION_FAILED")
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if f.flaws.oneKey {
		key = s.WorkKind
	}
	j := f.Jobs[f.Keys[key]]
	if j == nil || f.flaws.forgetKeys {
		now := fakeNow()
		j = &fakeJob{
			ID: uuid.NewString(), Type: s.Type, Kind: s.WorkKind, Attempt: 1,
			Created: now, Updated: now, ExecutionAt: s.ExecutionAt, Callback: s.Callback, CorrelationID: s.CorrelationID,
		}
		f.Jobs[j.ID], f.Keys[key] = j, j.ID
		f.event(j, "job.created", "CREATED", now)
		if s.ExecutionAt == nil {
			f.event(j, "job.queued", "QUEUED", now)
			f.plan(j, now)
		} else {
			due := s.ExecutionAt.Add(f.flaws.late - f.flaws.early)
			j.Plan = []fakeStep{{due, "QUEUED"}}
			f.plan(j, due)
		}
	} else if !f.flaws.silentReplay {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	if !f.flaws.noLocation {
		w.Header().Set("Location", "/v1/jobs/"+j.ID)
	}
	f.send(w, 202, "receipt", j, map[string]any{"job_id": j.ID, "state": j.Events[len(j.Events)-1].Next, "created_at": stamp(&j.Created)})
}

// plan adds the steps of an attempt that may be claimed at the given time.
func (f *fake) plan(j *fakeJob, at time.Time) {
	spec, _ := job.SpecOf(job.Kind(j.Kind), fakeLimit)
	took, end := f.scaled(time.Duration(spec.DurationMS)*time.Millisecond), "SUCCEEDED"
	if reason, fails := job.Kind(j.Kind).FailsOn(j.Attempt); fails {
		end = "FAILED"
		if reason == job.TimedOut {
			took = max(f.scaled(fakeLimit), time.Second)
		}
	}
	start := at.Add(2 * time.Millisecond)
	j.Plan = append(j.Plan, fakeStep{at.Add(time.Millisecond), "ASSIGNED"}, fakeStep{start, "RUNNING"})
	if j.Kind != f.flaws.stuck && j.Kind != f.flaws.holdRunning {
		j.Plan = append(j.Plan, fakeStep{start.Add(took), end})
	}
}

func (f *fake) scaled(d time.Duration) time.Duration {
	if f.flaws.quick {
		return 0
	}
	return time.Duration(float64(d) * f.scale)
}

// advance lets happen what has become due.
func (f *fake) advance(j *fakeJob) {
	for len(j.Plan) > 0 && !j.Plan[0].At.After(time.Now()) {
		step := j.Plan[0]
		j.Plan = j.Plan[1:]
		f.event(j, "job."+map[string]string{
			"QUEUED": "queued", "ASSIGNED": "assigned", "RUNNING": "running", "SUCCEEDED": "succeeded", "FAILED": "failed",
		}[step.Next], step.Next, step.At)
		switch {
		case step.Next == "RUNNING":
			j.Started, j.Finished = &step.At, nil
		case isFinal(step.Next):
			j.Finished = &step.At
		}
		if step.Next == "FAILED" && j.Attempt >= fakeMaxAttempts {
			j.Events = append(j.Events, fakeEvent{ID: uuid.NewString(), Name: "job.retries_exhausted", Attempt: j.Attempt, At: step.At})
		}
	}
}

func (f *fake) event(j *fakeJob, name, next string, at time.Time) {
	e := fakeEvent{ID: uuid.NewString(), Name: name, Prev: j.State, Next: next, Attempt: j.Attempt, At: at}
	j.Events = append(j.Events, e)
	j.State, j.Updated = next, at
	f.publish(j, e)
}

func (f *fake) cancel(w http.ResponseWriter, j *fakeJob) {
	state := j.State
	switch {
	case f.flaws.ignoreCancel:
		state = "CANCELED"
	case !isFinal(j.State) || f.flaws.secondCancel && j.State == "CANCELED":
		now := fakeNow()
		f.event(j, "job.canceled", "CANCELED", now)
		j.Plan, j.Finished = nil, &now
		state = "CANCELED"
	}
	f.send(w, 200, "cancel", j, map[string]any{"job_id": j.ID, "state": state, "updated_at": stamp(&j.Updated)})
}

func (f *fake) retry(w http.ResponseWriter, j *fakeJob) {
	if j.State == "FAILED" && (j.Attempt < fakeMaxAttempts || f.flaws.endlessRetry) && !f.flaws.refuseRetry {
		now := fakeNow()
		j.Attempt++
		f.event(j, "job.retried", "QUEUED", now)
		j.Started, j.Finished = nil, nil
		f.plan(j, now.Add(100*time.Millisecond))
	} else if isFinal(j.State) {
		f.problem(w, 409, "RFA_JOB_CONFLICT")
		return
	}
	f.send(w, 200, "retry", j, map[string]any{"job_id": j.ID, "state": j.State, "updated_at": stamp(&j.Updated), "attempt": j.Attempt})
}

// list shows the jobs of a kind.
func (f *fake) list(w http.ResponseWriter, r *http.Request) {
	list := []any{}
	for _, j := range f.Jobs {
		if f.advance(j); j.Kind == r.URL.Query().Get("work_kind") {
			list = append(list, f.view(j))
		}
	}
	f.json(w, 200, map[string]any{"data": list, "page": map[string]any{"limit": 100, "next_cursor": nil}})
}

func (f *fake) get(w http.ResponseWriter, j *fakeJob) {
	if !isFinal(j.State) {
		w.Header().Set("Retry-After", "1")
	}
	f.send(w, 200, "job", j, f.view(j))
}

func (f *fake) result(w http.ResponseWriter, j *fakeJob) {
	spec, _ := job.SpecOf(job.Kind(j.Kind), fakeLimit)
	content := make([]byte, spec.PayloadSize)
	sum := sha256.Sum256(content)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum[:])+":")
	_, _ = w.Write(content)
}

// isFinal and outcomes are section 8's.
func isFinal(state string) bool { return outcomes[state] != "" }

var outcomes = map[string]string{"SUCCEEDED": "SUCCESS", "FAILED": "FAILED", "CANCELED": "CANCELED"}

func (f *fake) view(j *fakeJob) map[string]any {
	spec, _ := job.SpecOf(job.Kind(j.Kind), fakeLimit)
	body := map[string]any{
		"job_id": j.ID, "type": j.Type, "work_kind": j.Kind, "state": j.State, "outcome": orNull(outcomes[j.State]),
		"created_at": stamp(&j.Created), "updated_at": stamp(&j.Updated), "execution_at": stamp(j.ExecutionAt),
		"attempt": j.Attempt, "max_attempts": fakeMaxAttempts, "callback": nil,
		"correlation_id": j.CorrelationID, "started_at": stamp(j.Started), "finished_at": stamp(j.Finished),
		"definition": map[string]any{"duration_ms": spec.DurationMS, "should_fail": spec.ShouldFail, "payload_size": spec.PayloadSize},
	}
	switch j.State {
	case "FAILED":
		body["failure"] = j.failure(j.Attempt)
	case "SUCCEEDED":
		body["result"] = map[string]any{"size_bytes": spec.PayloadSize, "checksum": map[string]any{"algorithm": "sha256", "value": "00"}}
	}
	return body
}

func (j *fakeJob) failure(attempt int) map[string]any {
	reason, _ := job.Kind(j.Kind).FailsOn(attempt)
	failure := job.NewFailure(reason, attempt, job.Backoff{Base: time.Second, Max: time.Minute})
	return map[string]any{
		"code": failure.Code, "jobId": j.ID, "jobStatus": job.StatusOf(job.Failed, failure), "detail": failure.Detail,
		"retryable": failure.Retryable, "retryAfter": failure.RetryAfter,
	}
}

func (f *fake) report(w http.ResponseWriter, j *fakeJob, attempt int) {
	spec, _ := job.SpecOf(job.Kind(j.Kind), fakeLimit)
	var events []any
	var started, finished *time.Time
	outcome := ""
	for i, e := range j.Events {
		switch {
		case e.Attempt > attempt:
			continue
		case e.Attempt == attempt && e.Next == "RUNNING":
			started = &e.At
		case e.Attempt == attempt && isFinal(e.Next):
			finished, outcome = &e.At, outcomes[e.Next]
		}
		events = append(events, map[string]any{
			"event_id": e.ID, "seq": i + 1, "job_id": j.ID, "event_name": e.Name, "prev_state": orNull(e.Prev),
			"next_state": orNull(e.Next), "attempt": e.Attempt, "timestamp": stamp(&e.At),
			"data": map[string]any{"work_kind": j.Kind, "duration_ms": spec.DurationMS, "expected_outcome": spec.Expected},
		})
	}
	body := map[string]any{
		"job_id": j.ID, "attempt": attempt, "outcome": orNull(outcome), "events": events, "started_at": stamp(started),
		"finished_at": stamp(finished), "duration_ms": 0,
	}
	if started != nil && finished != nil {
		body["duration_ms"] = finished.Sub(*started).Milliseconds()
	}
	if outcome == "FAILED" {
		body["failure"] = j.failure(attempt)
	}
	f.send(w, 200, "report", j, body)
}

// send answers with a copy of the body that the flaws may spoil.
func (f *fake) send(w http.ResponseWriter, status int, what string, j *fakeJob, body map[string]any) {
	body = maps.Clone(body)
	if f.flaws.tamper != nil {
		f.flaws.tamper(what, j, body)
	}
	f.json(w, status, body)
}

func (f *fake) json(w http.ResponseWriter, status int, body map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (f *fake) problem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": status, "code": code, "detail": "Told so by the test."})
}

// fakeNow is now as storage keeps it: whole microseconds, never rounded up.
func fakeNow() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

func stamp(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
