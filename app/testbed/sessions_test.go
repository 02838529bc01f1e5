package testbed

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// records is a store in which some clients have sessions.
type records struct {
	Store
	open map[job.ID]bool
	err  error
}

func (r *records) Record(_ context.Context, of testbed.Scope, _ *verdict.Exchange) (bool, error) {
	return r.open[of.Client] && r.err == nil, r.err
}

// While storage is away, an error is what nobody could record of clients that have a session, and nothing else.
func TestRecordFailsForClientsWithASession(t *testing.T) {
	t.Parallel()
	with, without, ended := app.NewID(), app.NewID(), app.NewID()
	store := &records{open: map[job.ID]bool{with: true, ended: true}}
	s := New(store, false)
	record := func(client job.ID) error {
		return s.Record(t.Context(), testbed.Scope{Client: client}, &verdict.Exchange{})
	}
	for _, client := range []job.ID{with, without, ended} {
		require.NoError(t, record(client))
	}
	delete(store.open, ended)
	require.NoError(t, record(ended))
	store.err = errors.New("away")
	for range 2 {
		require.ErrorIs(t, record(with), store.err)
		require.NoError(t, record(without))
		require.NoError(t, record(ended))
	}
}

// The rules of a profile stay while its session runs.
func TestRulesOfASessionStay(t *testing.T) {
	t.Parallel()
	of, ended := testbed.Scope{Client: app.NewID()}, fault.Time{}
	store := &profiled{session: verdict.Session{Profile: fault.FlakyNetwork}}
	s := New(store, false)
	changes := func() []error {
		_, err := s.ReplaceFaults(t.Context(), of, 1, nil, "")
		return []error{err, s.RemoveFaults(t.Context(), of), s.RemoveFault(t.Context(), of, app.NewID())}
	}
	for _, err := range changes() {
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
	}
	require.Zero(t, store.changes)
	for _, free := range []verdict.Session{{Profile: fault.FlakyNetwork, EndedAt: &ended}, {}} {
		store.session, store.changes = free, 0
		for _, err := range changes() {
			require.NoError(t, err)
		}
		require.Equal(t, 3, store.changes)
	}
}

// A request is of the open session with its label, or begins one, or of the one without a label if neither is open.
func TestLabelsOfRequests(t *testing.T) {
	t.Parallel()
	client, a, full := app.NewID(), app.NewID(), job.CodeValidationFailed
	for _, test := range []struct {
		store labels
		found job.ID
		opens int
		code  job.Code
	}{
		{labels{open: a, unlabelled: true}, a, 0, ""},
		{labels{open: a}, a, 0, ""},
		{labels{}, job.ID{}, 0, ""},
		{labels{unlabelled: true, opens: a}, a, 1, ""},
		{labels{unlabelled: true}, job.ID{}, 1, full},
		{labels{unlabelled: true, ends: true}, job.ID{}, 1, ""},
	} {
		of, err := New(&test.store, false).Enter(t.Context(), client, "a", "r")
		require.Equal(t, test.code != "", err != nil)
		if err != nil {
			require.Equal(t, test.code, job.CodeOf(err))
		}
		require.Equal(t, testbed.Scope{Client: client, Session: test.found}, of)
		require.Equal(t, test.opens, test.store.opened)
	}
}

// labels is a store with a session with a label, or one that can be begun.
type labels struct {
	Store
	open, opens      job.ID
	unlabelled, ends bool
	opened           int
}

func (l *labels) EnterSession(context.Context, job.ID, string, string) (job.ID, bool, error) {
	return l.open, l.unlabelled, nil
}

func (l *labels) OpenLabelled(context.Context, job.ID, job.ID, string, int) error {
	l.opened++
	l.open, l.unlabelled = l.opens, !l.ends
	return nil
}

// profiled is a store with one session.
type profiled struct {
	Store
	session verdict.Session
	changes int
}

func (p *profiled) Sessions(context.Context, job.ID, *string) ([]verdict.Session, error) {
	return []verdict.Session{p.session}, nil
}

func (p *profiled) ReplaceFaults(context.Context, testbed.Scope, int64, []fault.Counted) error {
	p.changes++
	return nil
}

func (p *profiled) RemoveFaults(context.Context, testbed.Scope, job.ID) (int, error) {
	p.changes++
	return 1, nil
}

func (p *profiled) Faults(context.Context, testbed.Scope) ([]fault.Counted, error) { return nil, nil }
