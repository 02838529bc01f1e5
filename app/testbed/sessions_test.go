package testbed

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// records is a store in which some clients have sessions.
type records struct {
	Store
	open map[job.ID]bool
	err  error
}

func (r *records) Record(_ context.Context, client job.ID, _ *verdict.Exchange) (bool, error) {
	return r.open[client] && r.err == nil, r.err
}

// While storage is away, an error is what nobody could record of clients that have a session, and nothing else.
func TestRecordFailsForClientsWithASession(t *testing.T) {
	t.Parallel()
	with, without, ended := app.NewID(), app.NewID(), app.NewID()
	store := &records{open: map[job.ID]bool{with: true, ended: true}}
	s := New(store)
	record := func(client job.ID) error { return s.Record(t.Context(), client, &verdict.Exchange{}) }
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
	client, ended := app.NewID(), fault.Time{}
	store := &profiled{session: verdict.Session{Profile: fault.FlakyNetwork}}
	s := New(store)
	changes := func() []error {
		_, err := s.ReplaceFaults(t.Context(), client, 1, nil, "")
		return []error{err, s.RemoveFaults(t.Context(), client), s.RemoveFault(t.Context(), client, app.NewID())}
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

// profiled is a store with one session.
type profiled struct {
	Store
	session verdict.Session
	changes int
}

func (p *profiled) Sessions(context.Context, job.ID) ([]verdict.Session, error) {
	return []verdict.Session{p.session}, nil
}

func (p *profiled) ReplaceFaults(context.Context, job.ID, int64, []fault.Counted) error {
	p.changes++
	return nil
}

func (p *profiled) RemoveFaults(context.Context, job.ID, job.ID) (int, error) {
	p.changes++
	return 1, nil
}

func (p *profiled) Faults(context.Context, job.ID) ([]fault.Counted, error) { return nil, nil }
