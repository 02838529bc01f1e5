package repo_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

func (f *fixture) keys(ids ...string) {
	must(f.store.InsertClient(f.ctx(), f.client))(f.t)
	for _, id := range ids {
		f.addKey(f.client, id)
	}
}

func (f *fixture) revoke(id string) {
	f.exec(`UPDATE api_keys SET revoked_at = clock_timestamp() WHERE key_id = $1`, id)
}

type change struct {
	name string
	do   func(ctx context.Context) error
}

func (f *fixture) changesOf() []change {
	hook, rule := f.subscribe("*"), fault.Counted{ID: newID().String()}
	asked := func(name string, x resources) change {
		return change{name, func(ctx context.Context) error { return f.requests(ctx)[name](f.client, x) }}
	}
	waiting := f.submit()
	return append(f.additionsFor(f.client, "a"), []change{
		{"batch", func(ctx context.Context) error { return errOf(f.store.InsertBatch(ctx, f.batch(2))) }},
		asked("cancel", resources{job: waiting}),
		{"cancel of many", func(ctx context.Context) error { return errOf(f.store.CancelAll(ctx, f.client, []job.ID{waiting})) }},
		asked("retry", resources{job: f.at(job.Failed)}), asked("remove", resources{job: f.at(job.Succeeded)}),
		asked("rotate", resources{webhook: hook}), asked("test", resources{webhook: hook}), asked("replay", resources{webhook: hook}),
		asked("update", resources{webhook: hook}), asked("unsubscribe", resources{webhook: hook}),
		{"rules of a test bed", func(ctx context.Context) error {
			return f.store.ReplaceFaults(ctx, of(f.client), 1, []fault.Counted{rule})
		}},
		{"session of a test bed", func(ctx context.Context) error {
			return errOf(f.store.StartSession(ctx, f.client, newSession(), 5))
		}},
		{"request with an idempotency key", func(ctx context.Context) error {
			return errOf(f.store.Once(ctx, job.RequestKey{ClientID: f.client, Scope: "test", Key: "k"}, func(context.Context) (job.Answer, error) {
				return job.Answer{Status: 200}, nil
			}))
		}},
	}...)
}

func (f *fixture) additionsFor(client job.ID, key string) []change {
	hook := f.hook("*")
	hook.ClientID = client
	return []change{
		{"submission", func(ctx context.Context) error {
			return errOf(f.store.InsertJob(ctx, f.submission(keyed(key), ofClient(client))))
		}},
		{"bulk operation", func(ctx context.Context) error {
			return errOf(f.store.InsertBulk(ctx, job.Bulk{ID: newID(), Owner: job.BulkOwner{ClientID: client}, Action: job.BulkCancel, Rate: 1}))
		}},
		{"webhook", func(ctx context.Context) error { return errOf(f.store.InsertWebhook(ctx, hook)) }},
		{"schedule", func(ctx context.Context) error {
			return errOf(f.store.InsertSchedule(ctx, job.Schedule{
				ID: newID(), ClientID: client, Overlap: job.OverlapSkip, CatchUp: job.CatchUpLast,
				Timetable: job.Timetable{Interval: time.Minute}, CatchUpMax: 1}, 10, func(s *job.Schedule) error { s.Paused = true; return nil }))
		}},
	}
}

// A change is refused if its API key expires or is revoked before the commit.
func TestAnEndedKeyChangesNothing(t *testing.T) {
	f := setup(t)
	f.keys("valid", "revoked", "expired")
	changes := f.changesOf()
	f.revoke("revoked")
	f.exec(`UPDATE api_keys SET expires_at = clock_timestamp() WHERE key_id = 'expired'`)
	before := f.contents()
	for _, c := range changes {
		for id, code := range map[string]job.Code{"revoked": job.CodeKeyDisabled, "expired": job.CodeTokenExpired, "gone": job.CodeKeyDisabled} {
			require.Equal(t, code, codeOf(c.do(job.WithKey(f.ctx(), id))), "%s with a key that is %s", c.name, id)
		}
	}
	require.Equal(t, before, f.contents())
	for _, c := range changes {
		require.NoError(t, c.do(job.WithKey(f.ctx(), "valid")), c.name)
	}
}

func TestAnEndedKeyFailsAlone(t *testing.T) {
	f := setup(t)
	f.keys("valid", "revoked")
	f.revoke("revoked")
	inParallel(30, func(n int) {
		id := []string{"valid", "revoked", ""}[n%3]
		code := codeOf(f.store.InsertJob(job.WithKey(f.ctx(), id), f.submission(keyed(fmt.Sprint(n)))))
		if want := map[string]job.Code{"revoked": job.CodeKeyDisabled}[id]; code != want {
			t.Errorf("a key that is %q: %s", id, code)
		}
	})
	require.Equal(t, 20, f.countJobs())
}

func TestAChangeWaitsForTheRevocationOfItsKey(t *testing.T) {
	f := setup(t, patient)
	f.keys("k")
	tx := f.begin()
	must(tx.Exec(f.ctx(), `UPDATE api_keys SET revoked_at = clock_timestamp()`))(t)
	done := begin(func() error {
		return f.store.ReplaceFaults(job.WithKey(context.Background(), "k"), of(f.client), 1, []fault.Counted{{ID: newID().String()}})
	})
	f.awaitBlocked(1)
	require.NoError(t, tx.Commit(f.ctx()))
	require.Equal(t, job.CodeKeyDisabled, codeOf(<-done))
	require.Zero(t, f.count("testbed_faults"))
}

func TestSubmissionsDoNotLookAtErasures(t *testing.T) {
	f := setup(t)
	f.keys("k")
	f.lock(`LOCK TABLE erasures IN ACCESS EXCLUSIVE MODE`)
	ctx := job.WithKey(f.ctx(), "k")
	calledBack := func(s *job.Submission) { s.Job.Callback = "http://x.test" }
	for _, opt := range []func(*job.Submission){keyed("a"), deferred(time.Hour), calledBack} {
		must(f.store.InsertJob(ctx, f.submission(opt)))(t)
	}
	must2(f.store.InsertBatch(ctx, f.batch(2)))(t)
}

// An erasure ends the client's keys. Then it waits for statements that began earlier, because they may still write.
func TestErasureWaitsForEarlierStatements(t *testing.T) {
	f := setup(t)
	f.keys("k")
	old := must(f.db.BeginTx(f.ctx(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead}))(t)
	t.Cleanup(func() { _ = old.Rollback(context.Background()) })
	must(old.Exec(f.ctx(), `SELECT FROM jobs`))(t) // takes a snapshot, but no transaction id
	e := f.erase(f.client)
	testkit.Eventually(t, "the erasure waits", func() bool { return f.eraseStep(e.ID).Erasure.Step == "settle" })
	for range 5 {
		require.Equal(t, "settle", f.eraseStep(e.ID).Erasure.Step)
	}
	require.NoError(t, old.Rollback(f.ctx()))
	require.Equal(t, job.ErasureDone, f.eraseAll(e.ID).State())
}

func TestAnEndedKeyReadsNoEvents(t *testing.T) {
	f := setup(t)
	f.keys("valid", "revoked", "expired")
	id := f.submit()
	reads := map[string]func(ctx context.Context) job.Code{
		"of a job": func(ctx context.Context) job.Code { return codeOf(f.store.Events(ctx, f.client, id, 0, 10)) },
		"of a client": func(ctx context.Context) job.Code {
			return codeOf(f.store.ClientEvents(ctx, f.client, job.Position{}, 10))
		},
	}
	testkit.Eventually(t, "the feed shows the job", func() bool { return len(f.feed(job.Position{}, 10).Events) > 0 })
	f.revoke("revoked")
	f.exec(`UPDATE api_keys SET expires_at = clock_timestamp() WHERE key_id = 'expired'`)
	for name, read := range reads {
		for key, code := range map[string]job.Code{"valid": "", "revoked": job.CodeKeyDisabled, "expired": job.CodeTokenExpired} {
			require.Equal(t, code, read(job.WithKey(f.ctx(), key)), "%s with a key that is %s", name, key)
		}
	}
	require.Empty(t, must(f.store.Events(job.WithKey(f.ctx(), "revoked"), f.client, id, 99, 10))(t).Events, "an empty page needs no key")
}
