package repo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/repo"
)

type historyRow struct {
	Submitted, Succeeded, Failed, Canceled, Retried int
	WaitP50, WaitP99, RunP50, RunP99                *int
}

func (f *fixture) recorded(width int, at time.Time) historyRow {
	rows := must(f.db.Query(f.ctx(), `SELECT submitted, succeeded, failed, canceled, retried, wait_ms_p50, wait_ms_p99, run_ms_p50, run_ms_p99
		FROM history WHERE width = $1 AND at = $2`, width, at))(f.t)
	return must(pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[historyRow]))(f.t)
}

func (f *fixture) writeHistory(at time.Time) historyRow {
	require.NoError(f.t, f.store.WriteHistory(f.ctx(), at))
	return f.recorded(10, at)
}

func (f *fixture) ago(by, width time.Duration) time.Time {
	return one[time.Time](f, `SELECT date_bin($2::interval, now() - $1::interval, 'epoch')`, by, width)
}

func (f *fixture) endedAt(s job.State, at time.Time, waited, ran time.Duration) job.ID {
	id := f.force(s)
	f.exec(`UPDATE jobs SET execution_at = due, run_at = due, started_at = CASE WHEN started_at IS NOT NULL THEN due + $3::interval END,
		finished_at = due + $3::interval + $4::interval FROM (SELECT $2::timestamptz AS due) d WHERE job_id = $1`,
		id.String(), at.Add(-waited-ran), waited, ran)
	return id
}

func ms(n int) *int { return &n }

func TestHistoryCountsWhatHappened(t *testing.T) {
	f := setup(t)
	at := f.ago(5*time.Minute, 10*time.Second)
	require.Equal(t, historyRow{}, f.writeHistory(at), "nothing")

	f.endedAt(job.Succeeded, at, time.Second, 2*time.Second)
	f.endedAt(job.Succeeded, at.Add(9999*time.Millisecond), 3*time.Second, 4*time.Second)
	retried := f.endedAt(job.Failed, at.Add(5*time.Second), 5*time.Second, 10*time.Second)
	f.exec(`UPDATE jobs SET attempt = 3 WHERE job_id = $1`, retried.String())
	f.endedAt(job.Canceled, at.Add(time.Second), time.Hour, 0)
	f.endedAt(job.Succeeded, at.Add(-time.Microsecond), time.Hour, time.Hour)
	f.endedAt(job.Succeeded, at.Add(10*time.Second), time.Hour, time.Hour)
	for _, taken := range []time.Duration{-time.Millisecond, 0, 9999 * time.Millisecond, 10 * time.Second} {
		f.exec(`UPDATE jobs SET job_id = uuid7($2) WHERE job_id = $1`, f.submit().String(), at.Add(taken))
	}
	want := historyRow{2, 2, 1, 1, 2, ms(3000), ms(5000), ms(4000), ms(10000)}
	require.Equal(t, want, f.writeHistory(at), "only events of these ten seconds count")

	f.exec(`UPDATE jobs SET started_at = started_at - interval '1 h', execution_at = execution_at - interval '2 h' WHERE job_id = $1`,
		retried.String())
	want.WaitP50, want.WaitP99, want.RunP99 = ms(1000), ms(3000), ms(3_610_000)
	require.Equal(t, want, f.writeHistory(at), "no duration is negative")
}

// Deleted and expired jobs still count in the history, even if their bucket is written again.
func TestHistoryKeepsDeletedJobs(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.RetentionJobs = time.Minute })
	at := f.ago(5*time.Minute, 10*time.Second)
	waited, ran := time.Second, 2*time.Second
	deleted, cleaned := f.endedAt(job.Succeeded, at, waited, ran), f.endedAt(job.Failed, at, 3*waited, 3*ran)
	f.endedAt(job.Canceled, at, 0, 0)
	for _, id := range []*job.ID{&deleted, &cleaned} {
		*id = job.ID(one[[16]byte](f, `UPDATE jobs SET job_id = uuid7($2) WHERE job_id = $1 RETURNING job_id`, id.String(), at))
	}
	want := historyRow{2, 1, 1, 1, 0, ms(1000), ms(3000), ms(2000), ms(6000)}
	require.Equal(t, want, f.writeHistory(at))
	require.NoError(t, f.store.Delete(f.ctx(), f.client, deleted))
	require.Equal(t, want, f.writeHistory(at))
	f.clean(10)
	require.Equal(t, 3, f.count("tombstones WHERE finished_at IS NOT NULL"))
	require.Equal(t, want, f.writeHistory(at))
	late := f.endedAt(job.Succeeded, at.Add(-time.Hour), 0, 0)
	require.NoError(t, f.store.Delete(f.ctx(), f.client, late))
	require.Equal(t, 1, f.count("tombstones WHERE finished_at IS NULL"), "the history no longer needs the job")
}

// A bucket counts each job once, even if two leaders write the bucket at the same time, or a leader writes it twice.
func TestHistoryIsNotDoubled(t *testing.T) {
	f := setup(t)
	stores := f.twoStores()
	at := f.ago(5*time.Minute, time.Minute)
	f.endedAt(job.Succeeded, at.Add(time.Second), time.Second, time.Second)
	f.atOnce(8, func(i int) (errs error) {
		for range 5 {
			errs = errors.Join(errs, stores[i%2].WriteHistory(f.ctx(), at), stores[i%2].RollUpHistory(f.ctx()))
		}
		return errs
	})
	requireBoth := func(n int) {
		for _, width := range []int{10, 60} {
			require.Equal(t, historyRow{0, n, 0, 0, 0, ms(1000), ms(1000), ms(1000), ms(1000)}, f.recorded(width, at))
		}
	}
	requireBoth(1)
	require.Equal(t, 2, f.count("history"))
	version := one[string](f, `SELECT string_agg(xmin::text, ' ') FROM history`)
	f.writeHistory(at)
	require.NoError(t, f.store.RollUpHistory(f.ctx()))
	require.Equal(t, version, one[string](f, `SELECT string_agg(xmin::text, ' ') FROM history`), "unchanged rows are not written")

	// This job's transaction ended after the bucket was written.
	f.endedAt(job.Succeeded, at.Add(time.Second), time.Second, time.Second)
	f.writeHistory(at)
	require.NoError(t, f.store.RollUpHistory(f.ctx()))
	requireBoth(2)
}

// A new leader writes the missing buckets of the last quarter of an hour, and always the latest three.
func TestHistoryResumes(t *testing.T) {
	f := setup(t)
	missing := must(f.store.MissingHistory(f.ctx()))(t)
	require.Len(t, missing, 90)
	require.WithinDuration(t, time.Now(), missing[0], testkit.Patience, "the latest ended bucket")
	for i, at := range missing {
		require.Equal(t, missing[0].Add(-time.Duration(i)*10*time.Second), at, "the latest first")
		require.NoError(t, f.store.WriteHistory(f.ctx(), at))
	}
	require.Equal(t, 90, f.count("history"))
	gap := []time.Time{missing[20], missing[40]}
	f.exec(`DELETE FROM history WHERE at = ANY ($1)`, gap)
	again := must(f.store.MissingHistory(f.ctx()))(t)
	require.Contains(t, []int{2 + 3, 2 + 4}, len(again), "another bucket may have ended by now")
	require.Equal(t, gap, again[len(again)-2:])
	require.NotContains(t, again, missing[2+len(again)-5+1])
}

func TestHistoryIsRolledUpAndRead(t *testing.T) {
	f := setup(t)
	shown := func(w admin.Window) []admin.HistoryBucket { return must(f.store.Admin().History(f.ctx(), w))(t) }
	ends := func(last time.Duration) admin.Ends { return must(f.store.Admin().Ends(f.ctx(), last))(t) }
	require.NoError(t, f.store.RollUpHistory(f.ctx()))
	for _, w := range []admin.Window{admin.LastQuarterHour, admin.LastHour, admin.LastDay} {
		require.Equal(t, []admin.HistoryBucket{}, shown(w))
	}
	require.Zero(t, ends(time.Hour))

	minute := f.ago(10*time.Minute, 5*time.Minute)
	write := func(at time.Time, r historyRow) {
		f.exec(`INSERT INTO history VALUES (10, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, at, r.Submitted, r.Succeeded, r.Failed,
			r.Canceled, r.Retried, r.WaitP50, r.WaitP99, r.RunP50, r.RunP99)
	}
	write(minute, historyRow{5, 3, 0, 1, 1, ms(100), ms(500), ms(10), ms(20)})
	write(minute.Add(20*time.Second), historyRow{7, 0, 1, 0, 0, ms(500), ms(500), ms(50), ms(90)})
	write(minute.Add(50*time.Second), historyRow{Submitted: 1, Canceled: 8})
	write(minute.Add(-time.Second*10), historyRow{Submitted: 3})
	write(f.ago(-time.Minute, time.Minute), historyRow{Submitted: 99}) // this minute is not over
	require.NoError(t, f.store.RollUpHistory(f.ctx()))
	require.Equal(t, historyRow{13, 3, 1, 9, 1, ms(200), ms(500), ms(20), ms(90)}, f.recorded(60, minute))
	require.Equal(t, historyRow{Submitted: 3}, f.recorded(60, minute.Add(-time.Minute)))
	require.Equal(t, 2, f.count(`history WHERE width = 60`))

	bucket := admin.HistoryBucket{At: job.Time(minute), Submitted: 13, Succeeded: 3, Failed: 1, Canceled: 9, Retried: 1,
		WaitMSP50: ms(200), WaitMSP99: ms(500), RunMSP50: ms(20), RunMSP99: ms(90)}
	require.Equal(t, bucket, shown(admin.LastHour)[1])
	quarter := shown(admin.LastQuarterHour)
	require.GreaterOrEqual(t, len(quarter), 4)
	require.Equal(t, job.Time(minute.Add(20*time.Second)), quarter[2].At)
	require.Nil(t, quarter[3].WaitMSP50)
	day := shown(admin.LastDay)
	require.Equal(t, 3, day[0].Submitted)
	require.Equal(t, bucket, day[1], "five minutes with one non-empty minute")

	require.Equal(t, admin.Ends{Submitted: 16 + 99, Succeeded: 3, Failed: 1, Canceled: 9}, ends(24*time.Hour))
	require.Equal(t, admin.Ends{Submitted: 99}, ends(2*time.Minute))
	write(one[time.Time](f, `SELECT max(at) + interval '10 s' FROM history`), historyRow{Succeeded: 10})
	require.Equal(t, admin.Ends{Submitted: 16 + 99, Succeeded: 13, Failed: 1, Canceled: 9}, ends(24*time.Hour),
		"of the minute that is not over, too, and nothing twice")
}
