package repo_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/invariants"
	"github.com/forgerun/forgerun/job"
)

func (f *fixture) validRows() pgx.NamedArgs {
	hook := f.subscribe("*")
	plain := f.run(keyed("plain"), func(s *job.Submission) { s.Job.Callback = "https://x.test/callback" })
	end := success(plain)
	end.Emit = &job.Emission{Name: "x", Data: json.RawMessage(`1`)}
	f.finish(end)
	due := f.submit(deferred(time.Hour))
	f.makeDue(due)
	f.queueDue(10)
	f.finish(success(f.claim(due, 1)))
	failed := f.run(attempts(2))
	f.finish(failure(failed, job.FailedOnce))
	f.retry(failed.JobID, 1)
	last := failure(f.claim(failed.JobID, 2), job.FailedOnce)
	last.Exhausted = true
	f.finish(last)
	retried := f.retrying(0)
	f.finish(success(f.claim(retried.JobID, 2)))
	lost := f.submit()
	f.release(f.assigned(lost, 1))
	f.finish(success(f.claim(lost, 1)))
	batch, _ := must2(f.store.InsertBatch(f.ctx(), f.batch(2)))(f.t)
	for _, id := range jobsOf(batch) {
		f.finish(success(f.claim(id, 1)))
	}
	f.completeBatches()
	f.deliverAll()
	return pgx.NamedArgs{"hook": hook.String(), "plain": plain.JobID.String(), "due": due.String(), "failed": failed.JobID.String(),
		"retried": retried.JobID.String(), "lost": lost.String(), "batch": batch.ID.String()}
}

func damages() map[string][]string {
	found, invariant := map[string][]string{}, ""
	for line := range strings.SplitSeq(strings.ReplaceAll(read("damages.txt"), "\n\t", " "), "\n") {
		if name, ok := strings.CutPrefix(line, "= "); ok {
			invariant = name
		} else if line != "" && !strings.HasPrefix(line, "--") {
			found[invariant] = append(found[invariant], line)
		}
	}
	return found
}

func TestInvariantsSeeDamage(t *testing.T) {
	f := setup(t)
	ids := f.validRows()
	findings := func(r invariants.Rule, sql string) (n int) {
		tx := f.begin()
		must(tx.Exec(f.ctx(), `SET LOCAL session_replication_role = replica`))(t) // no triggers
		must(tx.Exec(f.ctx(), sql, ids))(t)
		now := time.Now()
		require.NoError(t, r.Find(f.ctx(), tx, pgx.NamedArgs{
			"now": now, "settled": now, "recent": time.Duration(0), "skew": time.Minute, "follow": 10 * time.Minute,
		}, func(invariants.Finding) { n++ }), sql)
		require.NoError(t, tx.Rollback(f.ctx()))
		return n
	}
	damages := damages()
	for _, r := range invariants.Rules {
		require.Zero(t, findings(r, `SELECT`), r.Name)
		require.NotEmpty(t, damages[r.Name], r.Name)
		for _, sql := range damages[r.Name] {
			require.NotZero(t, findings(r, sql), "%s: %s", r.Name, sql)
		}
	}
}
