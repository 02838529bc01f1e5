package repo

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	lockBulk          = statement("lockBulk")
	insertBulk        = statement("insertBulk")
	countOpenBulks    = statement("countOpenBulks")
	readBulk          = statement("readBulk")
	listBulksOfClient = statement("listBulksOfClient")
	listBulks         = statement("listBulks")
	listBulkItems     = statement("listBulkItems")
	listBulkItemsWith = statement("listBulkItemsWith")
	countBulkOfClient = statement("countBulk", bulkOfClient...)
	countBulkOfBatch  = statement("countBulk", bulkOfBatch...)
	countBulkOfAll    = statement("countBulk", bulkOfAll...)
	abortBulk         = statement("abortBulk")
	cleanBulkItems    = statement("cleanBulkItems")
	cleanBulks        = statement("cleanBulks")
)

// The index along which jobs are looked at: see bulkLooked. As in the list of jobs, a
// batch of another client costs the same as one that never was.
var (
	bulkOfClient = []string{"{{owner}}", "client_id,", "{{value}}", "@client::uuid,", "{{order}}", "client_id DESC,", "{{guard}}", "true"}
	bulkOfBatch  = []string{"{{owner}}", "batch_id,", "{{value}}", "@batch::uuid,", "{{order}}", "batch_id DESC,", "{{guard}}",
		"batch_id IS NOT NULL AND EXISTS (SELECT FROM batches WHERE batch_id = @batch AND (@client::uuid IS NULL OR client_id = @client))"}
	bulkOfAll = []string{"{{owner}}", "", "{{value}}", "", "{{order}}", "", "{{guard}}", "true"}
)

// bulksKept is how long operations and their items are kept after their end.
const bulksKept = 7 * 24 * time.Hour

var errBulkNotFound = job.Errorf(job.CodeBulkNotFound, "No bulk operation with this id was found.")

// bulkColumns is the one column list of a bulk operation, read by scanBulk.
const bulkColumns = `bulk_operations.bulk_id, bulk_operations.client_id, bulk_operations.operator, bulk_operations.action,
  bulk_operations.filter, bulk_operations.rate, bulk_operations.override, bulk_operations.request_id, bulk_operations.created_at,
  bulk_operations.started_at, bulk_operations.gathered_at, bulk_operations.finished_at, bulk_operations.aborted, bulk_operations.position,
  bulk_operations.more, bulk_operations.total, bulk_operations.succeeded, bulk_operations.skipped, bulk_operations.failed`

func scanBulk(row pgx.CollectableRow) (*job.Bulk, error) {
	var b job.Bulk
	var filter []byte
	err := row.Scan(scanID(&b.ID), scanID(&b.Owner.ClientID), &b.Owner.Operator, &b.Action, &filter, &b.Rate, &b.Override, &b.RequestID,
		&b.CreatedAt, &b.StartedAt, &b.GatheredAt, &b.FinishedAt, &b.Aborted, scanID(&b.Position),
		&b.More, &b.Total, &b.Succeeded, &b.Skipped, &b.Failed)
	if err != nil {
		return nil, err
	}
	b.Done = b.Succeeded + b.Skipped + b.Failed
	return &b, json.Unmarshal(filter, &b.Filter)
}

// bulkItemColumns is the one column list of an item, read by scanBulkItem.
const bulkItemColumns = `job_id, client_id, attempt, event_seq, result, coalesce(code, ''), coalesce(detail, ''), ended_at`

func scanBulkItem(row pgx.CollectableRow) (i job.BulkItem, err error) {
	return i, row.Scan(scanID(&i.JobID), scanID(&i.ClientID), &i.Attempt, &i.EventSeq, &i.Result, &i.Code, &i.Detail, &i.At)
}

// bulkJobColumns are jobColumns without what a client sent, which can be 256 KiB for
// each job.
var bulkJobColumns = strings.NewReplacer("jobs.params", "NULL::json").Replace(jobColumns)

// InsertBulk stores a bulk operation, and gives it with the time of its creation. It
// returns only after the commit, unless that is Once's. Too many that are not finished
// are a conflict for their owner, and for others a limit of the server.
func (s *Store) InsertBulk(ctx context.Context, b job.Bulk) (added *job.Bulk, err error) {
	filter, err := json.Marshal(b.Filter)
	if err != nil {
		return nil, err
	}
	err = s.inTx(ctx, "bulk", func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, lockBulk); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, insertBulk, uuid(b.ID), uuid(b.Owner.ClientID), b.Owner.Operator, b.Action, filter, b.Rate, b.Override,
			b.RequestID, b.Owner.MayOpen(), job.MaxOpenBulks-job.MaxOpenBulksOperator)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, scanBulk)
		if err == nil && len(found) == 0 {
			return manyBulks(ctx, tx, b.Owner)
		}
		if err == nil {
			added = found[0]
		}
		return err
	})
	return added, err
}

// manyBulks says which limit an operation would be above.
func manyBulks(ctx context.Context, tx pgx.Tx, owner job.BulkOwner) error {
	var own int
	if err := tx.QueryRow(ctx, countOpenBulks, uuid(owner.ClientID)).Scan(&own); err != nil {
		return err
	}
	if own >= owner.MayOpen() {
		return job.Errorf(job.CodeConflict, "There are %d bulk operations that are not finished, which is the most. Wait until one has ended, "+
			"or abort one.", own)
	}
	return &job.Error{Code: job.CodeRateLimited, RetryAfter: bulkRetryAfter,
		Detail: "The server has as many bulk operations under way as it may have. Nothing was begun."}
}

// bulkRetryAfter is the advised wait where all clients together have too many operations.
const bulkRetryAfter = 10 * time.Second

// Bulk reads a bulk operation of a client; with the zero client, anybody's.
func (s *Store) Bulk(ctx context.Context, client, id job.ID) (*job.Bulk, error) {
	b, found, err := queryFirst(ctx, s, scanBulk, readBulk, uuid(id), uuid(client))
	if err == nil && !found {
		err = errBulkNotFound
	}
	return b, err
}

// Bulks lists the bulk operations of a client, the newest first; with the zero client,
// all. It answers where the list goes on, the zero id at its end.
func (s *Store) Bulks(ctx context.Context, client job.ID, q job.BulkQuery) (list []*job.Bulk, next job.ID, err error) {
	before := q.After
	if before.IsZero() {
		_, before = idRange(job.Query{})
	}
	if client.IsZero() {
		list, err = queryRows(ctx, s, scanBulk, listBulks, [16]byte(before), q.Limit+1)
	} else {
		list, err = queryRows(ctx, s, scanBulk, listBulksOfClient, uuid(client), [16]byte(before), q.Limit+1)
	}
	if len(list) > q.Limit {
		list = list[:q.Limit]
		next = list[q.Limit-1].ID
	}
	return list, next, err
}

// BulkItems lists the items of a client's operation in order of their jobs, as Bulks
// does.
func (s *Store) BulkItems(ctx context.Context, client, id job.ID, q job.BulkQuery) (items []job.BulkItem, next job.ID, err error) {
	if _, err := s.Bulk(ctx, client, id); err != nil {
		return nil, next, err
	}
	if q.Result == "" {
		items, err = queryRows(ctx, s, scanBulkItem, listBulkItems, uuid(id), [16]byte(q.After), q.Limit+1)
	} else {
		items, err = queryRows(ctx, s, scanBulkItem, listBulkItemsWith, uuid(id), [16]byte(q.After), q.Limit+1, string(q.Result))
	}
	if len(items) > q.Limit {
		items = items[:q.Limit]
		next = items[q.Limit-1].JobID
	}
	return items, next, err
}

// AbortBulk ends a client's operation at the item that it has come to, and gives it.
// One that was aborted before is given as it is, and one that is done is a conflict.
func (s *Store) AbortBulk(ctx context.Context, client, id job.ID) (b *job.Bulk, changed bool, err error) {
	b, changed, err = queryFirst(ctx, s, scanBulk, abortBulk, uuid(id), uuid(client))
	if err != nil || changed {
		return b, changed, err
	}
	b, err = s.Bulk(ctx, client, id)
	if err == nil && !b.Aborted {
		return nil, false, job.Errorf(job.CodeConflict, "The bulk operation is done: nothing is left to abort.")
	}
	return b, false, err
}

// CountBulk looks at a part of the jobs that an operation would be about, before the
// given job or with the zero id from the newest on.
func (s *Store) CountBulk(ctx context.Context, client job.ID, f job.BulkFilter, before job.ID, look int) (l job.BulkLook, err error) {
	args := append(bulkArgs(client, f, before, time.Now().Add(idSkew)), look, job.BulkSample)
	l, _, err = queryFirst(ctx, s, func(row pgx.CollectableRow) (l job.BulkLook, err error) {
		var first []idScanner
		err = row.Scan(&l.Looked, &l.Matched, scanID(&l.Last), &first)
		l.First = column(first, func(id idScanner) job.ID { return job.ID(id) })
		return l, err
	}, bulkStatement(client, f, countBulkOfClient, countBulkOfBatch, countBulkOfAll), args...)
	return l, err
}

// BulkJobs reads the jobs of a sample, without Params, the newest first. Those that are
// gone meanwhile are left out.
func (s *Store) BulkJobs(ctx context.Context, ids []job.ID) ([]*job.Job, error) {
	found, err := s.bulkJobs(ctx, ids)
	var jobs []*job.Job
	for _, id := range ids {
		if j := found[id]; j != nil {
			jobs = append(jobs, j)
		}
	}
	return jobs, err
}

// bulkStatement chooses the statement by the index along which jobs are looked at.
func bulkStatement(client job.ID, f job.BulkFilter, ofClient, ofBatch, ofAll string) string {
	switch {
	case !f.BatchID.IsZero():
		return ofBatch
	case !client.IsZero():
		return ofClient
	default:
		return ofAll
	}
}

// bulkArgs are the arguments of bulkLooked for jobs that were created until then. The
// client is whose jobs are meant, zero for all.
func bulkArgs(client job.ID, f job.BulkFilter, before job.ID, until time.Time) []any {
	after, earlier := (*time.Time)(f.CreatedAfter), (*time.Time)(f.CreatedBefore)
	bound := until.Add(time.Microsecond)
	if earlier != nil && earlier.Before(bound) {
		bound = *earlier
	}
	from, to := idRange(job.Query{After: before, CreatedAfter: after, CreatedBefore: &bound})
	return []any{
		uuid(client), uuid(f.BatchID), [16]byte(to), [16]byte(from), nullable(string(f.State)), nullable(string(f.Type)),
		nullable(string(f.WorkKind)), nullable(f.CorrelationID), nullable(string(f.FailureCode)), after, earlier, until,
	}
}
