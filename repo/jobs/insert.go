package jobs

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// jobsEndpoint is the scope of idempotency keys of POST /jobs.
const jobsEndpoint = "jobs"

// keyReused refuses a known key with another payload. The error may name the job or batch of the first request, because the same client
// sent that request.
func keyReused(endpoint string, made job.ID) error {
	const detail = "This idempotency key was used for a different request, which created %s %s. " +
		"Repeat that request unchanged, or use a new key."
	switch endpoint {
	case jobsEndpoint:
		err := job.Errorf(job.CodeIdempotencyConflict, detail, "job", made)
		err.JobID = made
		return err
	case batchEndpoint:
		err := job.Errorf(job.CodeIdempotencyConflict, detail, "batch", made)
		err.BatchID = made
		return err
	}
	return errKeyReused
}

var errKeyReused = job.Errorf(job.CodeIdempotencyConflict, "This idempotency key was used for a different request.")

// errKeyInFlight refuses a request if its key changed between two statements: another request took and freed the key, or the key expired.
var errKeyInFlight = &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: pg.RetryAfter,
	Detail: "Another request with this idempotency key was being processed. Repeat the request."}

// InsertJob stores a submission in one statement: the key's row, the job and its first events. It returns only after the commit. For a
// known idempotency key, it returns the first answer. InsertJob refuses an expired or revoked API key, see job.WithKey. It calls
// sub.Committed for each new job, in the order of created_at. It does so even if ctx has ended.
func (s *Store) InsertJob(ctx context.Context, sub job.Submission) (job.Receipt, error) {
	return s.inserts.Do(ctx, insertion{Submission: sub, apiKey: job.KeyOf(ctx)})
}

// insertion is a submission with the created_at that its flush assigned. Zero means Postgres' time.
type insertion struct {
	job.Submission
	at     time.Time
	apiKey string // "" for the service's own submissions
}

func (s *Store) beginInserts(batch []*pg.Waiter[insertion, job.Receipt]) (end func()) {
	p := s.order.take(len(batch))
	for i, w := range batch {
		w.Item.at = p.at(i)
	}
	return func() {
		s.order.end(p, len(batch), func() {
			for _, w := range batch {
				if w.Got.Err == nil && !w.Got.Value.Replayed && w.Item.Committed != nil {
					w.Item.Committed(w.Got.Value)
				}
			}
		})
	}
}

func submissionKey(sub insertion) string {
	if sub.IdempotencyKey == "" {
		return ""
	}
	return string(sub.Job.ClientID[:]) + sub.IdempotencyKey
}

func submissionBytes(sub insertion) int {
	n := len(sub.Job.Params) + 512
	if d := sub.Job.Definition; d != nil && d.Emit != nil {
		n += len(d.Emit.Data)
	}
	return n
}

func (s *Store) insertJobs(ctx context.Context, db pg.Conn, subs []insertion) ([]pg.Answer[job.Receipt], error) {
	text := statement("insertJobs")
	if slices.ContainsFunc(subs, func(sub insertion) bool { return sub.apiKey == "" }) {
		text = statement("insertOwn")
	}
	arguments, err := insertArguments(subs)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, text, arguments...)
	type stored struct {
		job.Receipt
		server time.Time // Postgres' time during the statement
	}
	receipts, err := pg.CollectByID(rows, err, func(r *stored) []any { return []any{&r.State, &r.CreatedAt, &r.server} })
	if err != nil {
		return nil, err
	}
	answers := make([]pg.Answer[job.Receipt], len(subs))
	for i, sub := range subs {
		receipt, ok := receipts[sub.Job.ID]
		if !ok {
			answers[i] = s.unstored(ctx, sub)
			continue
		}
		if i == len(subs)-1 { // the times increase, so this one is the greatest
			s.order.stored(sub.at, receipt.CreatedAt, receipt.server)
		}
		receipt.JobID = sub.Job.ID
		answers[i].Value = receipt.Receipt
	}
	return answers, nil
}

func insertArguments(subs []insertion) ([]any, error) {
	type sub = insertion
	definitions, err := pg.JSONColumn(subs, func(x sub) (*job.Definition, bool) { return x.Job.Definition, true })
	if err != nil {
		return nil, err
	}
	var schedules []pgtype.UUID
	var scheduledTimes []*time.Time
	if slices.ContainsFunc(subs, func(x sub) bool { return !x.Job.ScheduleID.IsZero() }) {
		schedules = pg.Column(subs, func(x sub) pgtype.UUID { return pg.UUID(x.Job.ScheduleID) })
		scheduledTimes = pg.Column(subs, func(x sub) *time.Time { return x.Job.ScheduledFor })
	}
	return []any{
		pg.Column(subs, func(x sub) pgtype.UUID { return pg.UUID(x.Job.ID) }),
		pg.Column(subs, func(x sub) pgtype.UUID { return pg.UUID(x.Job.ClientID) }),
		pg.Column(subs, func(x sub) string { return string(x.Job.Type) }),
		pg.Column(subs, func(x sub) string { return string(x.Job.WorkKind) }),
		definitions,
		pg.Column(subs, func(x sub) []byte { return x.Job.Params }),
		pg.Column(subs, func(x sub) int { return x.Job.MaxAttempts }),
		pg.Column(subs, func(x sub) bool { return x.Job.AutoRetry }),
		pg.Column(subs, func(x sub) *time.Time { return x.Job.ExecutionAt }),
		pg.Column(subs, func(x sub) *string { return pg.Nullable(x.Job.Callback) }),
		pg.Column(subs, func(x sub) *string { return pg.Nullable(x.Job.CorrelationID) }),
		pg.Column(subs, func(x sub) *string { return pg.Nullable(x.Job.TraceParent) }),
		pg.Column(subs, func(x sub) string { return x.Job.Language }),
		pg.Column(subs, func(x sub) string { return x.Job.RequestID }),
		pg.Column(subs, func(x sub) *string { return pg.Nullable(x.IdempotencyKey) }),
		pg.Column(subs, func(x sub) []byte { return x.RequestHash[:] }),
		pg.Column(subs, func(x sub) pgtype.UUID { return pg.UUID(x.Job.BatchID) }),
		pg.Column(subs, func(x sub) *time.Time { return pg.Nullable(x.at) }),
		idempotencyWindow, pg.EventIDs(2 * len(subs)),
		pg.Column(subs, func(x sub) *string { return pg.Nullable(x.apiKey) }),
		leaseColumn(subs, func(x sub) job.ID { return x.Job.Lease }),
		schedules, scheduledTimes,
	}, nil
}

func (s *Store) unstored(ctx context.Context, sub insertion) pg.Answer[job.Receipt] {
	err := cmp.Or(s.refusal(ctx, sub), s.requireLease(ctx, sub.Job.Lease))
	var receipt *job.Receipt
	if err == nil {
		receipt, err = s.FindReceipt(ctx, sub.Job.ClientID, sub.IdempotencyKey, sub.RequestHash)
	}
	if err == nil && receipt == nil { // the other request rolled back, or its key expired meanwhile
		err = errKeyInFlight
	}
	return pg.Answer[job.Receipt]{Value: pg.Deref(receipt), Err: err}
}

func (s *Store) refusal(ctx context.Context, sub insertion) error {
	if sub.apiKey != "" {
		return s.db.RequireKey(ctx, sub.apiKey)
	}
	erased, err := s.clients.IsErased(ctx, sub.Job.ClientID)
	if err == nil && erased {
		err = pg.ErrErased
	}
	return err
}

// FindReceipt returns the stored answer of an idempotency key, nil if the key is unused or expired. If the key was used for a different
// request, it returns an idempotency conflict.
func (s *Store) FindReceipt(ctx context.Context, client job.ID, key string, hash [32]byte) (*job.Receipt, error) {
	return s.findKey(ctx, client, jobsEndpoint, key, hash)
}

// The receipt that findKey returns for a batch has no State.
func (s *Store) findKey(ctx context.Context, client job.ID, endpoint, key string, hash [32]byte) (*job.Receipt, error) {
	type known struct {
		job.Receipt
		hash []byte
	}
	k, found, err := pg.QueryFirst(ctx, s.db, func(row pgx.CollectableRow) (k known, err error) {
		k.Replayed = true
		return k, pg.ScanRow(row, &k.JobID, &k.State, &k.CreatedAt, &k.hash)
	}, `SELECT resource_id, coalesce(state, ''), created_at, request_hash FROM idempotency_keys
		WHERE client_id = $1 AND endpoint = $2 AND key = $3 AND expires_at > clock_timestamp()`, pg.UUID(client), endpoint, key)
	switch {
	case err != nil || !found:
		return nil, err
	case !bytes.Equal(k.hash, hash[:]):
		return nil, keyReused(endpoint, k.JobID)
	}
	return &k.Receipt, nil
}
