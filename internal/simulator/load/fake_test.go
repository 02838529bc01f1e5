package load

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
	"github.com/forgerun/forgerun/internal/testkit"
)

// fake is a service that keeps its jobs in memory and ends each as its work kind
// says, at once: what the engine does is looked at here, not what a service does.
type fake struct {
	t    *testing.T
	http *httptest.Server

	mu     sync.Mutex
	jobs   map[string]*fakeJob
	byKey  map[string]string                                        // job ids, or batch answers
	events []string                                                 // frames of the stream
	news   chan struct{}                                            // closed at the next event
	answer func(n int, r *http.Request, w http.ResponseWriter) bool // of the n-th submission; true: it has answered
	posts  int
	keys   []string // of the submissions, in order
}

type fakeJob struct {
	ID, Kind, State string
	Attempt         int
	Correlation     string
}

func newFake(t *testing.T) *fake {
	f := &fake{t: t, jobs: map[string]*fakeJob{}, byKey: map[string]string{}, news: make(chan struct{})}
	mux := http.NewServeMux()
	created := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { write(w, http.StatusCreated, body) }
	}
	mux.HandleFunc("POST /v1/clients", created(`{"client_id":"c"}`))
	mux.HandleFunc("POST /v1/clients/c/keys", created(`{"api_key":"frk_k_s","key_id":"k"}`))
	mux.HandleFunc("POST /v1/jobs", f.submit)
	mux.HandleFunc("POST /v1/jobs/batch", f.submitBatch)
	mux.HandleFunc("GET /v1/jobs/{id}", f.get)
	mux.HandleFunc("POST /v1/jobs/{id}/{verb}", f.act)
	mux.HandleFunc("GET /v1/events", f.stream)
	f.http = httptest.NewServer(mux)
	t.Cleanup(f.http.Close)
	return f
}

func write(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"status":%d,"code":%q,"title":"refused"}`, status, code)
}

func (f *fake) submit(w http.ResponseWriter, r *http.Request) {
	var job client.JobRequest
	require.NoError(f.t, json.NewDecoder(r.Body).Decode(&job))
	f.mu.Lock()
	f.posts++
	n, key := f.posts, r.Header.Get("Idempotency-Key")
	f.keys = append(f.keys, key)
	answer := f.answer
	f.mu.Unlock()
	if answer != nil && answer(n, r, w) {
		return
	}
	f.mu.Lock()
	id, replayed := f.byKey[key]
	if !replayed {
		id = f.add(job)
		f.byKey[key] = id
	}
	state := f.jobs[id].State
	f.mu.Unlock()
	if replayed {
		w.Header().Set("Idempotency-Replayed", "true")
	}
	write(w, http.StatusAccepted, fmt.Sprintf(`{"job_id":%q,"state":%q,"created_at":"2030-01-01T00:00:00.000000Z"}`, id, state))
	f.mu.Lock()
	defer f.mu.Unlock()
	if !replayed {
		f.begin(f.jobs[id])
	}
}

func (f *fake) submitBatch(w http.ResponseWriter, r *http.Request) {
	var batch struct{ Jobs []client.JobRequest }
	require.NoError(f.t, json.NewDecoder(r.Body).Decode(&batch))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keys = append(f.keys, r.Header.Get("Idempotency-Key"))
	var items []string
	for _, job := range batch.Jobs {
		if job.WorkKind == "PAYLOAD_INVALID" {
			items = append(items, fmt.Sprintf(`{"item_id":%q,"failure":{"status":400,"code":"RFA_JOB_VALIDATION_FAILED"}}`, job.ItemID))
			continue
		}
		id := f.add(job)
		f.begin(f.jobs[id])
		items = append(items, fmt.Sprintf(`{"item_id":%q,"job_id":%q,"state":"QUEUED"}`, job.ItemID, id))
	}
	write(w, http.StatusAccepted, `{"batch_id":"b-1","jobs":[`+strings.Join(items, ",")+`]}`)
}

// add needs the lock.
func (f *fake) add(job client.JobRequest) string {
	j := &fakeJob{ID: fmt.Sprintf("job-%d", len(f.jobs)+1), Kind: job.WorkKind, State: client.Queued, Attempt: 1,
		Correlation: job.CorrelationID}
	f.jobs[j.ID] = j
	return j.ID
}

// begin runs an attempt as far as it goes without the client.
func (f *fake) begin(j *fakeJob) {
	for _, state := range []string{client.Assigned, client.Running} {
		f.change(j, state)
	}
	switch {
	case strings.HasPrefix(j.Kind, "CANCEL"):
	case strings.HasPrefix(j.Kind, "RETRY_LIMIT"), j.Kind == "RETRY_ON_FAIL" && j.Attempt == 1:
		f.change(j, client.Failed)
	default:
		f.change(j, client.Succeeded)
	}
}

// change needs the lock.
func (f *fake) change(j *fakeJob, state string) {
	id := len(f.events) + 1
	name := "job-" + strings.ToLower(state)
	data := fmt.Sprintf(`{"event_id":"e-%d","seq":%d,"job_id":%q,"event_name":%q,`+
		`"prev_state":%q,"next_state":%q,"attempt":%d,"timestamp":"2030-01-01T00:00:00.000000Z"}`,
		id, id, j.ID, strings.Replace(name, "-", ".", 1), j.State, state, j.Attempt)
	if isFinal(state) {
		data = fmt.Sprintf(`{"jobId":%q,"jobStatus":"COMPLETED","attempt":%d,"retryable":%t}`, j.ID, j.Attempt, state == client.Failed)
	}
	j.State = state
	f.events = append(f.events, fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, name, data))
	close(f.news)
	f.news = make(chan struct{})
}

func (f *fake) get(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[r.PathValue("id")]
	if j == nil {
		refuse(w, http.StatusNotFound, "RFA_JOB_NOT_FOUND")
		return
	}
	write(w, http.StatusOK, fmt.Sprintf(`{"job_id":%q,"state":%q,"attempt":%d}`, j.ID, j.State, j.Attempt))
}

func (f *fake) act(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.jobs[r.PathValue("id")]
	again := false
	switch {
	case r.PathValue("verb") == "cancel" && !isFinal(j.State):
		f.change(j, client.Canceled)
	case r.PathValue("verb") == "retry" && j.Attempt == 4:
		refuse(w, http.StatusConflict, "RFA_JOB_CONFLICT")
		return
	case r.PathValue("verb") == "retry" && j.State == client.Failed:
		j.Attempt++
		f.change(j, client.Queued)
		again = true
	}
	write(w, http.StatusOK, fmt.Sprintf(`{"job_id":%q,"state":%q,"attempt":%d}`, j.ID, j.State, j.Attempt))
	if again {
		f.begin(j)
	}
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	f.mu.Lock()
	next := len(f.events)
	if _, err := fmt.Sscan(r.Header.Get("Last-Event-ID"), &next); err != nil {
		_, _ = fmt.Fprintf(w, "id: %d\ndata:\n\n", next)
	}
	for {
		frames, news := f.events[next:], f.news
		next = len(f.events)
		f.mu.Unlock()
		_, _ = w.Write([]byte(strings.Join(frames, "")))
		w.(http.Flusher).Flush()
		select {
		case <-news:
		case <-r.Context().Done():
			return
		}
		f.mu.Lock()
	}
}

// played is what the engine did with a scenario.
type played struct {
	engine   *Engine
	recorder *report.Recorder
	facts    map[history.Kind][]history.Fact
}

// tries are those of a ticket.
func (p played) submission(ticket int64) history.Fact {
	for _, f := range p.facts[history.Submitted] {
		if f.Ticket == ticket {
			return f
		}
	}
	return history.Fact{}
}

func (f *fake) play(text string) played {
	f.t.Helper()
	s, err := scenario.Parse("test.yaml", []byte(text))
	require.NoError(f.t, err)
	dir := f.t.TempDir()
	facts, err := history.Create(dir)
	require.NoError(f.t, err)
	p := played{recorder: report.NewRecorder(time.Now()), facts: map[history.Kind][]history.Fact{}}
	p.engine, err = New(Options{URL: f.http.URL, Run: "run", Scenario: s, History: facts, Recorder: p.recorder, Patience: testkit.Patience})
	require.NoError(f.t, err)
	require.NoError(f.t, p.engine.Prepare(f.t.Context()))
	require.NoError(f.t, p.engine.Run(f.t.Context()))
	unfinished, _ := p.engine.Drain(f.t.Context())
	require.Zero(f.t, unfinished)
	p.engine.Close()
	require.NoError(f.t, facts.Close())
	r, err := history.Open(dir)
	require.NoError(f.t, err)
	for b := range history.Buckets + 1 {
		require.NoError(f.t, r.Each(b, func(fact history.Fact) error {
			p.facts[fact.Kind] = append(p.facts[fact.Kind], fact)
			return nil
		}))
	}
	return p
}
