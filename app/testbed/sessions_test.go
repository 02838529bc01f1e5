package testbed

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

// records is a store in which some clients have sessions.
type records struct {
	Store
	open map[job.ID]bool
	err  error
}

func (r *records) Record(_ context.Context, client job.ID, _ *testbed.Exchange) (bool, error) {
	return r.open[client] && r.err == nil, r.err
}

// While storage is away, an error is what nobody could record of clients that have a session, and nothing else.
func TestRecordFailsForClientsWithASession(t *testing.T) {
	t.Parallel()
	with, without, ended := app.NewID(), app.NewID(), app.NewID()
	store := &records{open: map[job.ID]bool{with: true, ended: true}}
	s := New(store, nil)
	record := func(client job.ID) error { return s.Record(t.Context(), client, &testbed.Exchange{}) }
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
