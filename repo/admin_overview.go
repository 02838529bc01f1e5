package repo

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

var (
	readSituation = statement("adminSituation")
	readMark      = statement("adminMark")
)

// maxMarked is how many held jobs are watched for events.
const maxMarked = 10_000

// Mark gives a text that is another one once something has happened that operators look at.
func (a Admin) Mark(ctx context.Context) (string, error) {
	mark, _, err := queryFirst(ctx, a.store, pgx.RowTo[string], readMark, maxMarked)
	return mark, err
}

// Situation tells how the service is at this moment.
func (a Admin) Situation(ctx context.Context) (admin.Situation, error) {
	now, found, err := queryFirst(ctx, a.store, scanJSON[admin.Situation], readSituation, MaxCount, [16]byte{}, [16]byte{}, maxLookedEndpoints)
	if err == nil && !found {
		err = job.Errorf(job.CodeStorageUnavailable, "The database has no schema yet.")
	}
	return now, err
}

// History tells what happened in a window, from old to new.
func (a Admin) History(ctx context.Context, w admin.Window) ([]admin.HistoryBucket, error) {
	length, step := w.Span()
	width := 60
	if step < time.Minute {
		width = int(historyWidth / time.Second)
	}
	buckets, _, err := queryFirst(ctx, a.store, scanJSON[[]admin.HistoryBucket], readHistory, width, length, step)
	return buckets, err
}

// Ends counts how jobs ended in the last time, as far as history goes back: two days at most.
func (a Admin) Ends(ctx context.Context, last time.Duration) (admin.Ends, error) {
	ends, _, err := queryFirst(ctx, a.store, pgx.RowToStructByPos[admin.Ends], sumHistory, last)
	return ends, err
}
