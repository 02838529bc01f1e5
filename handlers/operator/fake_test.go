package operator_test

import (
	"cmp"
	"context"
	"time"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
)

var (
	anID  = job.ID{0x01, 0x90, 15: 1}
	now   = job.Time(time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC))
	nowAt = time.Time(now)
)

// store answers with one of each kind, and keeps what it was asked.
type store struct {
	query   admin.JobQuery
	narrow  admin.Range
	places  []admin.Place // of the next pages
	nexts   []job.ID
	err     error
	job     admin.Job
	entries []admin.AuditEntry
	ended   []any
	auditQ  admin.AuditQuery
	done    []string
	request job.Request
	panics  bool

	bulk      job.BulkRequest
	bulkQuery job.BulkQuery

	rules         int // of faults
	paused        job.Pauses
	attempts      []admin.DeliveryAttempt
	url           string // of the webhook, the callback, and the delivery, if set
	erasure       job.ErasureRequest
	erasuresAfter job.ID
	erasuresLimit int
}

func (*store) Mark(context.Context) (string, error) { return "1", nil }

// missing is the error of an id that none has.
func missing(id job.ID) error {
	if httpkit.Known(id) {
		return nil
	}
	return job.Errorf(job.CodeRequestNotFound, "Nothing with this id was found.")
}

func (s *store) find(id job.ID) error { return cmp.Or(missing(id), s.err) }

func (s *store) nextID() (id job.ID) {
	if len(s.nexts) > 0 {
		id, s.nexts = s.nexts[0], s.nexts[1:]
	}
	return id
}

func page[T any](s *store, r admin.Range, one T) (admin.Page[T], error) {
	s.narrow = r
	return admin.Page[T]{Data: []T{one}, Next: s.nextID()}, s.err
}

var (
	summary = admin.SummaryOf(&job.Job{ID: anID, ClientID: anID, Type: job.Execute, WorkKind: job.SuccessFast, State: job.Queued,
		CreatedAt: nowAt, UpdatedAt: nowAt, Attempt: 1, MaxAttempts: 4})
	client = admin.Client{ClientID: anID, CreatedAt: now}
	hook   = admin.Webhook{ClientID: anID, Webhook: view.Webhook{
		WebhookID: anID, URL: "http://x.test", Events: []string{"*"}, ContentMode: "binary", CreatedAt: now, UpdatedAt: now,
	}}
	delivery = admin.Delivery{ClientID: anID, Delivery: view.Delivery{
		DeliveryID: anID, WebhookID: &anID, EventID: anID, EventName: "job.queued", State: job.DeliveryDelivered, CreatedAt: now,
	}}
	worker = admin.Worker{
		WorkerID: anID, Name: "w", State: "ALIVE", Jobs: []admin.HeldJob{}, StartedAt: now, HeartbeatAt: now, ExpiresAt: now,
	}
)

func (s *store) Jobs(_ context.Context, q admin.JobQuery) (p admin.JobPage, err error) {
	s.query = q
	if len(s.places) > 0 {
		p.Next, s.places = s.places[0], s.places[1:]
	}
	p.Jobs = []admin.JobSummary{summary}
	return p, s.err
}

func (s *store) Count(_ context.Context, q admin.JobQuery) (admin.Count, error) {
	s.query = q
	return admin.Count{Count: 3}, s.err
}

func (s *store) Job(_ context.Context, id job.ID) (*admin.Job, error) {
	j := s.job
	j.JobSummary, j.RunAt = summary, now
	j.RequestID, j.AttemptsLog, j.Events, j.Deliveries = "r", []admin.Attempt{}, append([]admin.Event{}, j.Events...), []admin.Delivery{}
	if s.url != "" {
		j.Callback, j.Deliveries = new(s.url), []admin.Delivery{s.delivery()}
	}
	return &j, s.find(id)
}

func (s *store) OwnerOf(_ context.Context, id job.ID) (job.ID, error) { return anID, s.find(id) }

func (s *store) Workers(_ context.Context, r admin.Range) (admin.Page[admin.Worker], error) {
	return page(s, r, worker)
}

func (s *store) Queues(_ context.Context, r admin.Range) (admin.Bounded[admin.Queue], error) {
	s.narrow = r
	return admin.Bounded[admin.Queue]{Data: []admin.Queue{{ClientID: anID, WorkKind: job.SuccessFast}}}, s.err
}

func (s *store) Failures(_ context.Context, r admin.Range) (admin.Bounded[admin.FailureGroup], error) {
	s.narrow = r
	return admin.Bounded[admin.FailureGroup]{Data: []admin.FailureGroup{}}, s.err
}

func (s *store) Clients(_ context.Context, r admin.Range) (admin.Page[admin.Client], error) {
	return page(s, r, client)
}

func (s *store) Client(_ context.Context, id job.ID) (*admin.ClientDetail, error) {
	return &admin.ClientDetail{Client: client, Keys: []admin.Key{}}, s.find(id)
}

func (s *store) Webhooks(_ context.Context, r admin.Range) (admin.Page[admin.Webhook], error) {
	return page(s, r, s.hook())
}

func (s *store) Webhook(_ context.Context, id job.ID) (*admin.Webhook, error) {
	return new(s.hook()), s.find(id)
}

func (s *store) hook() admin.Webhook {
	w := hook
	w.URL = cmp.Or(s.url, w.URL)
	return w
}

func (s *store) delivery() admin.Delivery {
	d := delivery
	if s.url != "" {
		d.URL = new(s.url)
	}
	return d
}

func (s *store) Deliveries(_ context.Context, r admin.Range) (admin.Page[admin.Delivery], error) {
	return page(s, r, s.delivery())
}

func (s *store) Delivery(_ context.Context, id job.ID) (*admin.LoggedDelivery, error) {
	return &admin.LoggedDelivery{Delivery: s.delivery(), AttemptsLog: append([]admin.DeliveryAttempt{}, s.attempts...)}, s.find(id)
}

func (s *store) Batches(_ context.Context, r admin.Range) (admin.Page[admin.Batch], error) {
	return page(s, r, admin.Batch{BatchID: anID, ClientID: anID, CreatedAt: now})
}

func (s *store) Batch(_ context.Context, id job.ID) (*admin.Batch, error) {
	return &admin.Batch{BatchID: anID, ClientID: anID, CreatedAt: now, Counts: map[string]int{
		"created": 0, "queued": 0, "assigned": 0, "running": 0, "succeeded": 0, "failed": 0, "canceled": 0, "refused": 0,
	}}, s.find(id)
}

func (s *store) System(context.Context) (*admin.System, error) {
	return &admin.System{Time: now, SchemaVersion: 1}, s.err
}

func (s *store) Overview(_ context.Context, w admin.Window) (*admin.Overview, error) {
	_, step := w.Span()
	states, ended := map[job.State]int{}, map[job.State]int{}
	for _, state := range job.States {
		if state.Final() {
			ended[state] = 0
		} else {
			states[state] = 0
		}
	}
	return &admin.Overview{
		AsOf: now, States: states, Ended: ended, History: admin.History{StepSeconds: int(step.Seconds()), Buckets: []admin.HistoryBucket{}},
		Attention: []admin.Attention{},
	}, s.err
}

func (s *store) Progress(context.Context, job.ID, int) *job.Progress { return nil }

func (s *store) did(what string) error {
	if s.panics {
		panic("as a broken use case")
	}
	if s.err == nil {
		s.done = append(s.done, what)
	}
	return s.err
}

func (s *store) Submit(_ context.Context, r job.Request) (job.Receipt, error) {
	s.request = r
	if len(r.Violations) > 0 {
		return job.Receipt{}, r.Refusal(r.Violations)
	}
	return job.Receipt{JobID: anID, State: job.Queued, CreatedAt: nowAt}, s.did("submit")
}

func (s *store) change(what string) (job.Change, error) {
	return job.Change{JobID: anID, State: job.Queued, Attempt: 1, UpdatedAt: nowAt, Changed: true}, s.did(what)
}

func (s *store) Cancel(context.Context, job.ID, job.ID) (job.Change, error) {
	return s.change("cancel")
}
func (s *store) Retry(context.Context, job.ID, job.ID) (job.Change, error) { return s.change("retry") }

func (s *store) RetryAnyway(context.Context, job.ID, job.ID) (job.Change, error) {
	return s.change("retry anyway")
}

func (s *store) Delete(context.Context, job.ID, job.ID) error { return s.did("delete") }

func (s *store) Result(context.Context, job.ID, job.ID) (*job.StoredResult, error) {
	return &job.StoredResult{Result: job.Result{MediaType: "text/html", Body: []byte("<b>")}}, s.err
}

// clients are the use cases of clients, one of whose names is that of a list.
type clients struct{ *store }

func (c clients) CreateClient(_ context.Context, by job.Caller) (job.Client, error) {
	return job.Client{ID: anID, CreatedAt: nowAt}, c.did("create client by " + by.Operator)
}

func (c clients) NameClient(_ context.Context, id job.ID, _ string) error {
	return cmp.Or(missing(id), c.did("name client"))
}

func (c clients) CreateKey(_ context.Context, by job.Caller, id job.ID, _ bool, scope job.Scope) (job.IssuedKey, error) {
	key := job.APIKey{ID: "k", Scope: scope, ExpiresAt: nowAt}
	return job.IssuedKey{APIKey: key, Secret: "frk_k_s"}, cmp.Or(missing(id), c.did("create key by "+by.Operator))
}

func (c clients) RevokeKey(_ context.Context, by job.Caller, id job.ID, key string) error {
	return cmp.Or(missing(id), c.did("revoke "+key+" by "+by.Operator))
}

func (s *store) Begin(_ context.Context, e admin.AuditEntry) error {
	if s.err == nil {
		s.entries = append(s.entries, e)
	}
	return s.err
}

func (s *store) End(_ context.Context, _ job.ID, status int, target string) error {
	s.ended = append(s.ended, status, target)
	return nil
}

func (s *store) Audit(_ context.Context, q admin.AuditQuery) (admin.Page[admin.AuditEntry], error) {
	s.auditQ = q
	return admin.Page[admin.AuditEntry]{Data: []admin.AuditEntry{}, Next: s.nextID()}, s.err
}

// bulks are operations on many jobs, some of whose names are those of others.
type bulks struct{ *store }

func bulkOperation() *job.Bulk {
	return &job.Bulk{
		ID: anID, Owner: job.BulkOwner{Operator: "ann"}, Action: job.BulkRetry, Filter: job.BulkFilter{WorkKind: job.CPUBurst}, Rate: 200,
		CreatedAt: nowAt,
	}
}

func (b bulks) Begin(_ context.Context, r job.BulkRequest) (*job.Bulk, error) {
	b.bulk = r
	return bulkOperation(), b.did("begin bulk by " + r.Owner.Operator)
}

func (b bulks) Count(_ context.Context, r job.BulkRequest) (job.BulkCount, error) {
	b.bulk = r
	return job.BulkCount{Count: 4, Changes: 1, Left: left, Sample: []*job.Job{{
		ID: anID, ClientID: anID, Type: job.Execute, WorkKind: job.SuccessFast, State: job.Failed, Outcome: "FAILED", Attempt: 1, MaxAttempts: 4,
		CreatedAt: nowAt, UpdatedAt: nowAt, StartedAt: &nowAt, FinishedAt: &nowAt, Failure: job.NewFailure(job.FailedOnce, 1, job.Backoff{}),
	}}}, b.err
}

func (b bulks) Bulk(_ context.Context, _ job.BulkOwner, id job.ID) (*job.Bulk, error) {
	return bulkOperation(), b.find(id)
}

func (b bulks) Bulks(_ context.Context, _ job.BulkOwner, q job.BulkQuery) ([]*job.Bulk, job.ID, error) {
	b.bulkQuery = q
	return []*job.Bulk{bulkOperation()}, b.nextID(), b.err
}

func (b bulks) Items(_ context.Context, _ job.BulkOwner, id job.ID, q job.BulkQuery) ([]job.BulkItem, job.ID, error) {
	b.bulkQuery = q
	return []job.BulkItem{{JobID: anID, Result: job.ItemSkipped, Detail: "It has ended.", At: &nowAt}}, b.nextID(), b.find(id)
}

func (b bulks) Abort(_ context.Context, o job.BulkOwner, id job.ID) (*job.Bulk, error) {
	return bulkOperation(), cmp.Or(missing(id), b.did("abort by "+o.Operator))
}
