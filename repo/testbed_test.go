package repo_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// rules stores a rule for each match. The rules apply to the client's requests without a label.
func (f *fixture) rules(effect fault.Effect, matches ...fault.Match) (rules []fault.Counted) {
	for n, m := range matches {
		rules = append(rules, fault.Counted{Rule: fault.Rule{Match: m, Effect: effect}, ID: newID().String(), Position: n + 1})
	}
	require.NoError(f.t, f.store.ReplaceFaults(f.ctx(), of(f.client), 7, rules))
	return rules
}

func (f *fixture) counted(operation, subject string) []fault.Counted {
	return must(f.store.CountFaults(f.ctx(), of(f.client), operation, subject))(f.t)
}

var unavailable = fault.Effect{Status: 503}

func TestFaultsAreCounted(t *testing.T) {
	f := setup(t)
	other := newID()
	rules := f.rules(unavailable, fault.Match{Operation: "submitJob", Every: 3}, fault.Match{}, fault.Match{Operation: "getJob"})
	foreign := fault.Counted{Rule: fault.Rule{Effect: fault.Effect{Status: 500}}, ID: newID().String(), Position: 1}
	require.NoError(t, f.store.ReplaceFaults(f.ctx(), of(other), 8, []fault.Counted{foreign}))

	const n = 40
	found := make([][]fault.Counted, n)
	f.atOnce(n, func(i int) (err error) {
		found[i], err = f.store.CountFaults(f.ctx(), of(f.client), "submitJob", "")
		return err
	})
	numbers := map[int64]bool{}
	for _, counted := range found {
		require.Len(t, counted, 2)
		require.Equal(t, []any{rules[0].Rule, rules[0].ID}, []any{counted[0].Rule, counted[0].ID})
		numbers[counted[0].Seen] = true
	}
	require.Len(t, numbers, n)
	require.True(t, must(f.store.FaultApplied(f.ctx(), of(f.client), rules[0]))(t))
	list := must(f.store.Faults(f.ctx(), of(f.client)))(t)
	require.Len(t, list, 3)
	for i, want := range []int64{n, n, 0} {
		require.Equal(t, []any{rules[i].ID, want}, []any{list[i].ID, list[i].Seen})
		require.EqualValues(t, 7, list[i].Seed)
	}
	require.EqualValues(t, 1, list[0].Applied)

	first := must(job.ParseID(rules[0].ID))(t)
	require.Zero(t, must(f.store.RemoveFaults(f.ctx(), of(other), first))(t), "of another client")
	require.Equal(t, 1, must(f.store.RemoveFaults(f.ctx(), of(f.client), first))(t))
	require.Equal(t, 2, must(f.store.RemoveFaults(f.ctx(), of(f.client), job.ID{}))(t))
	require.Equal(t, 1, f.count("testbed_faults"))
}

func TestCountingTakesOneConnectionOfAClient(t *testing.T) {
	f := setup(t, patient)
	f.rules(fault.Effect{Delay: 5}, fault.Match{})
	unlock := f.lock(`SELECT FROM testbed_faults FOR UPDATE`)
	var calls sync.WaitGroup
	for range 2 * f.store.MaxConnections() {
		calls.Go(func() { _, _ = f.store.CountFaults(f.ctx(), of(f.client), "submitJob", "") })
	}
	f.awaitBlocked(1)
	require.Empty(t, must(f.store.CountFaults(f.ctx(), of(newID()), "submitJob", ""))(t))
	f.submit()
	unlock()
	calls.Wait()
	require.EqualValues(t, 2*f.store.MaxConnections(), must(f.store.Faults(f.ctx(), of(f.client)))(t)[0].Seen)
}

func TestRulesThatCannotApplyAreNotCounted(t *testing.T) {
	f := setup(t)
	past, future := fault.Time(time.Now().Add(-time.Hour)), fault.Time(time.Now().Add(time.Hour))
	f.rules(unavailable, fault.Match{}, fault.Match{Nth: 1}, fault.Match{Operation: "getJob"}, fault.Match{Until: &past},
		fault.Match{From: &future})
	require.Len(t, f.counted("submitJob", ""), 2)
	require.Len(t, f.counted("submitJob", ""), 1)
	seen := each(must(f.store.Faults(f.ctx(), of(f.client)))(t), func(c fault.Counted) int64 { return c.Seen })
	require.Equal(t, []int64{2, 1, 0, 0, 0}, seen)
}

// A rule with "same" applies to one request and its repetitions.
func TestRulesStayWithTheirSubject(t *testing.T) {
	f := setup(t, patient)
	f.rules(unavailable, fault.Match{Nth: 2, Times: 3, Same: true}, fault.Match{Nth: 1, Times: 3})
	count := func(subject string) []fault.Counted { return f.counted("getJob", subject) }
	require.False(t, count("a")[0].Applies())
	const n = 8
	subject := func(i int) string { return string(rune('a' + i)) }
	found := make([][]fault.Counted, n)
	f.atOnce(n, func(i int) (err error) {
		found[i], err = f.store.CountFaults(f.ctx(), of(f.client), "getJob", subject(i))
		return err
	})
	applied := make([]bool, n)
	f.atOnce(n, func(i int) (err error) {
		if !found[i][0].Applies() {
			return errors.New("each may be the first")
		}
		applied[i], err = f.store.FaultApplied(f.ctx(), of(f.client), found[i][0])
		return err
	})
	first := slices.Index(applied, true)
	require.NotEqual(t, -1, first)
	require.NotContains(t, applied[first+1:], true, "only the first request binds the rule")
	require.Len(t, count(subject(first)), 2)
	require.Len(t, count("another"), 1)
	require.True(t, must(f.store.FaultApplied(f.ctx(), of(f.client), count(subject(first))[0]))(t))
	require.True(t, must(f.store.FaultApplied(f.ctx(), of(f.client), count("another")[0]))(t), "the other rule applies to any subject")
	kept := must(f.store.Faults(f.ctx(), of(f.client)))(t)
	require.Equal(t, []int64{n + 3, 2, n + 5, 1}, []int64{kept[0].Seen, kept[0].Applied, kept[1].Seen, kept[1].Applied})
	require.NoError(t, f.store.ReplaceFaults(f.ctx(), of(f.client), 7, nil))
	require.False(t, must(f.store.FaultApplied(f.ctx(), of(f.client), found[first][0]))(t), "the rule was removed")
}

func TestWindowsAreNotExceeded(t *testing.T) {
	f := setup(t, patient)
	const n = 8
	for wanted, m := range map[int]fault.Match{
		3: {Nth: 1, Times: 3}, 1: {Nth: 1, Times: 1, Same: true}, n: {Nth: 1, Times: 1, For: fault.Duration(time.Minute)},
	} {
		f.rules(unavailable, m)
		found := make([]fault.Counted, n)
		for i := range found {
			found[i] = f.counted("getJob", "a")[0]
			require.True(t, found[i].Applies())
		}
		var applied atomic.Int64
		f.atOnce(n, func(i int) error {
			ok, err := f.store.FaultApplied(f.ctx(), of(f.client), found[i])
			if ok {
				applied.Add(1)
			}
			return err
		})
		require.EqualValues(t, wanted, applied.Load())
	}
}

func TestFaultsAreReplacedAsAWhole(t *testing.T) {
	f := setup(t, patient)
	f.atOnce(8, func(i int) error {
		rules := make([]fault.Counted, i+1)
		for n := range rules {
			rules[n] = fault.Counted{Rule: fault.Rule{Effect: fault.Effect{Status: 503}}, ID: newID().String(), Position: n + 1}
		}
		return f.store.ReplaceFaults(f.ctx(), of(f.client), int64(len(rules)), rules)
	})
	list := must(f.store.Faults(f.ctx(), of(f.client)))(t)
	require.EqualValues(t, list[0].Seed, len(list))
}

func sessionID(s verdict.Session) job.ID {
	id, err := job.ParseID(s.ID)
	if err != nil {
		panic(err)
	}
	return id
}

func TestOpenStreamsAreCounted(t *testing.T) {
	f := setup(t)
	n, _ := must2(f.store.StartSession(f.ctx(), f.client, newSession(), verdict.MaxSessions))(t)
	record := func(p *verdict.Part) int {
		must(f.store.Record(f.ctx(), of(f.client), &verdict.Exchange{Method: "GET", Stream: p}))(t)
		return must(f.store.OpenStreams(f.ctx(), f.client, n))(t)
	}
	require.Zero(t, record(nil))
	require.Equal(t, 1, record(&verdict.Part{Open: true}))
	require.Equal(t, 2, record(&verdict.Part{Open: true}))
	require.Equal(t, 1, record(&verdict.Part{}))
	require.Equal(t, 0, record(&verdict.Part{Events: 3}))
	require.Zero(t, must(f.store.OpenStreams(f.ctx(), newID(), n))(t), "of another client")
}

func of(client job.ID) testbed.Scope { return testbed.Scope{Client: client} }

func newSession() verdict.Session {
	return verdict.Session{ID: newID().String(), Profile: fault.FlakyNetwork, Seed: 7, Rules: []string{"backoff"}}
}

func TestSessionsRecord(t *testing.T) {
	f := setup(t)
	other := newID()
	var begun atomic.Pointer[verdict.Session]
	f.atOnce(8, func(int) error {
		n, ok, err := f.store.StartSession(f.ctx(), f.client, newSession(), verdict.MaxSessions)
		if ok && !begun.CompareAndSwap(nil, &n) {
			t.Error("two sessions are open")
		}
		return err
	})
	session := *begun.Load()
	require.Nil(t, session.EndedAt)
	require.Equal(t, newSession().Rules, session.Rules)

	const requests = 20
	at := time.Now().UTC().Truncate(time.Microsecond)
	f.atOnce(requests, func(n int) error {
		x := &verdict.Exchange{Start: at.Add(-time.Duration(n) * time.Second), Method: "GET", Status: 200, Job: newID().String()}
		recorded, err := f.store.Record(f.ctx(), of(f.client), x)
		foreign, err2 := f.store.Record(f.ctx(), of(other), x)
		if !recorded || foreign {
			err = errors.New("recorded for the wrong client")
		}
		return errors.Join(err, err2)
	})
	record := must(f.store.Recorded(f.ctx(), f.client, session))(t)
	require.Equal(t, requests, record.Log.Len())
	require.Empty(t, record.Runs)
	require.Empty(t, record.Attempts)
	v := verdict.Of(&record)
	for e := range v.Journal() {
		require.Equal(t, at.Add(time.Duration(e.Number-requests)*time.Second), time.Time(e.At), "exchanges are in order of their start")
		require.NotEmpty(t, e.Job)
	}
	require.Equal(t, requests, f.count("testbed_exchanges"), "a client without a session has no record")

	_, found := must2(f.store.EndSession(f.ctx(), other, sessionID(session)))(t)
	require.False(t, found)
	ended, found := must2(f.store.EndSession(f.ctx(), f.client, sessionID(session)))(t)
	require.True(t, found)
	require.Equal(t, requests, ended.Recorded)
	again, _ := must2(f.store.EndSession(f.ctx(), f.client, sessionID(session)))(t)
	require.Equal(t, ended, again)
	must(f.store.Record(f.ctx(), of(f.client), &verdict.Exchange{}))(t)
	require.Equal(t, requests, f.count("testbed_exchanges"), "the session has ended")
}

// Beyond the size limit, exchanges are only counted.
func TestSessionsAreBounded(t *testing.T) {
	f := setup(t)
	n, _ := must2(f.store.StartSession(f.ctx(), f.client, newSession(), verdict.MaxSessions))(t)
	f.exec(`UPDATE testbed_sessions SET bytes = $1`, verdict.MaxBytes-300)
	for range 2 {
		must(f.store.Record(f.ctx(), of(f.client), &verdict.Exchange{Method: "GET", Path: strings.Repeat("p", 100)}))(t)
	}
	require.Equal(t, 1, must(f.store.Recorded(f.ctx(), f.client, n))(t).Log.Len())
	n, _ = must2(f.store.Session(f.ctx(), f.client, sessionID(n)))(t)
	require.Equal(t, 2, n.Recorded)
}

func TestNextDue(t *testing.T) {
	f := setup(t)
	require.Nil(t, must(f.store.NextDue(f.ctx()))(t))
	later := f.submit(deferred(3 * time.Hour))
	f.submit() // already due
	runAt := func() time.Time { return one[time.Time](f, `SELECT run_at FROM jobs WHERE job_id = $1`, later) }
	require.Equal(t, runAt(), *must(f.store.NextDue(f.ctx()))(t))
	later = f.submit(deferred(2 * time.Hour))
	require.Equal(t, runAt(), *must(f.store.NextDue(f.ctx()))(t))
	at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	f.schedule() // already due
	f.schedule(func(s *job.Schedule) { s.DueAt, s.LookAt = &at, &at })
	require.True(t, at.Equal(*must(f.store.NextDue(f.ctx()))(t)))
}
