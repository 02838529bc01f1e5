package repo_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func (f *fixture) requestKey(key string) job.RequestKey {
	return job.RequestKey{ClientID: f.client, Scope: "client", Key: key, Hash: [32]byte{1}}
}

var someAnswer = job.Answer{Status: 200, Header: map[string]string{"Location": "/x"}, Body: []byte(`{"b":1,"a":null}`)}

// canceling cancels a job within Once.
func canceling(s *repo.Store, client, id job.ID) func(context.Context) (job.Answer, error) {
	return func(ctx context.Context) (job.Answer, error) {
		change, _, err := s.Cancel(ctx, client, id)
		if err == nil && !change.Changed {
			err = errors.New("it was canceled before")
		}
		return someAnswer, err
	}
}

func TestKeyEffectAndAnswerAreOneCommit(t *testing.T) {
	f := setup(t)
	id := f.submit()
	answer, replayed := must2(f.store.Once(f.ctx(), f.requestKey("k"), func(ctx context.Context) (job.Answer, error) {
		a, err := canceling(f.store, f.client, id)(ctx)
		require.Equal(t, job.Queued, f.job(id).State, "nobody else sees it yet")
		require.Zero(t, f.count("idempotency_keys"))
		within, readErr := f.store.Job(ctx, f.client, id)
		require.NoError(t, readErr)
		require.Equal(t, job.Canceled, within.State)
		return a, err
	}))(t)
	require.False(t, replayed)
	require.Equal(t, someAnswer, answer)
	require.Equal(t, job.Canceled, f.job(id).State)

	all := f.all(id)
	answer, replayed = must2(f.store.Once(f.ctx(), f.requestKey("k"), func(context.Context) (job.Answer, error) {
		panic("it was done before")
	}))(t)
	require.True(t, replayed)
	require.Equal(t, someAnswer, answer, "the very bytes")
	require.Equal(t, all, f.all(id))
	other := f.requestKey("k")
	other.Hash[0]++
	require.Equal(t, job.CodeIdempotencyConflict, codeOf(f.store.Once(f.ctx(), other, canceling(f.store, f.client, id))))
	for _, apart := range []job.RequestKey{{ClientID: newID(), Scope: "client", Key: "k"}, {Scope: "anonymous", Key: "k"}} {
		_, replayed := must2(f.store.Once(f.ctx(), apart, func(context.Context) (job.Answer, error) { return someAnswer, nil }))(t)
		require.False(t, replayed)
	}

	f.expireKeys()
	_, replayed = must2(f.store.Once(f.ctx(), other, func(context.Context) (job.Answer, error) { return someAnswer, nil }))(t)
	require.False(t, replayed, "the window is over")
	f.checkInvariants()
}

func TestWhatFailsLeavesNothing(t *testing.T) {
	f := setup(t)
	id := f.submit()
	all := f.all(id)
	refusal := job.Errorf(job.CodeConflict, "No.")
	ended, end := context.WithCancel(f.ctx())
	for name, after := range map[string]func() error{
		"a refusal":            func() error { return refusal },
		"the request's end":    func() error { end(); return nil },
		"a connection's death": func() error { f.killConnections(); return nil },
	} {
		ctx := f.ctx()
		if name == "the request's end" {
			ctx = ended
		}
		_, _, err := f.store.Once(ctx, f.requestKey(name), func(ctx context.Context) (job.Answer, error) {
			a := must(canceling(f.store, f.client, id)(ctx))(t)
			return a, after()
		})
		require.Error(t, err, name)
		require.Equal(t, all, f.all(id), name)
		require.Zero(t, f.count("idempotency_keys"), name)
	}
	_, replayed := must2(f.store.Once(f.ctx(), f.requestKey("a refusal"), canceling(f.store, f.client, id)))(t)
	require.False(t, replayed)
}

// killConnections ends the store's sessions.
func (f *fixture) killConnections() {
	f.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
		AND state = 'idle in transaction'`)
}

// Ten processes get the same request at once.
func TestTenTimesAtOnceIsOnce(t *testing.T) {
	f := setup(t)
	id := f.submit()
	const many = 10
	stores := []*repo.Store{f.store}
	for len(stores) < many/2 {
		stores = append(stores, repotest.OpenURL(t, f.url, patient))
	}
	var effects, replays atomic.Int32
	f.atOnce(many, func(i int) error {
		s := stores[i%len(stores)]
		answer, replayed, err := s.Once(f.ctx(), f.requestKey("k"), func(ctx context.Context) (job.Answer, error) {
			effects.Add(1)
			return canceling(s, f.client, id)(ctx)
		})
		if replayed {
			replays.Add(1)
		}
		if string(answer.Body) != string(someAnswer.Body) {
			err = errors.Join(err, fmt.Errorf("answered %+v", answer))
		}
		return err
	})
	require.EqualValues(t, []int32{1, many - 1}, []int32{effects.Load(), replays.Load()})
	f.checkInvariants()
}

func TestCancelAll(t *testing.T) {
	f := setup(t)
	cancelAll := func(ctx context.Context) {
		open := []job.ID{f.submit(), f.at(job.Running), f.submit()}
		done := must(f.store.CancelAll(ctx, f.client, append([]job.ID{f.at(job.Succeeded), newID()}, open...)))(t)
		for _, c := range done {
			require.True(t, c.Change.Changed)
			require.False(t, c.Before.State.Final())
		}
		require.ElementsMatch(t, open, each(done, func(c job.Canceling) job.ID { return c.Before.ID }))
		for _, id := range open {
			require.Equal(t, job.Canceled, must(f.store.Job(ctx, f.client, id))(t).State)
		}
	}
	cancelAll(f.ctx())
	must2(f.store.Once(f.ctx(), f.requestKey("k"), func(ctx context.Context) (job.Answer, error) {
		cancelAll(ctx)
		return someAnswer, nil
	}))(t)
	f.checkInvariants()
}

func TestFirstUseOfAKeyIsKept(t *testing.T) {
	f := setup(t)
	c := must(f.store.InsertClient(f.ctx(), newID()))(t)
	f.exec(`INSERT INTO api_keys (key_id, client_id, secret_hash, issued_by, created_at, expires_at)
		VALUES ('key', $1, sha256(''), 'CREATED', now(), now() + interval '1 day')`, c.ID.String())
	k := must(f.store.Key(f.ctx(), "key"))(t)
	require.Nil(t, k.UsedAt)
	f.useKey("key")
	require.WithinDuration(t, time.Now(), *must(f.store.Key(f.ctx(), "key"))(t).UsedAt, testkit.Patience)
	row := one[string](f, `SELECT xmin::text FROM api_keys`)
	f.useKey("key")
	require.Equal(t, row, one[string](f, `SELECT xmin::text FROM api_keys`), "written once")
}
