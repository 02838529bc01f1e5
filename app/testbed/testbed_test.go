package testbed

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/clock"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func newBed(t *testing.T) (*Service, *repo.Store) {
	t.Parallel()
	store := repotest.OpenURL(t, repotest.URL(t), func(c *repo.Config) { c.Clock = clock.New() })
	return New(store, false), store
}

func TestRecordFailsOnlyForClientsWithSession(t *testing.T) {
	s, store := newBed(t)
	with, without, ended := app.NewID(), app.NewID(), app.NewID()
	record := func(client job.ID) error {
		return s.Record(t.Context(), testbed.Scope{Client: client}, &verdict.Exchange{Method: "GET"})
	}
	sessions := map[job.ID]job.ID{}
	for _, client := range []job.ID{with, ended} {
		n, err := s.StartSession(t.Context(), client, verdict.Session{})
		require.NoError(t, err)
		sessions[client], err = job.ParseID(n.ID)
		require.NoError(t, err)
	}
	for _, client := range []job.ID{with, without, ended} {
		require.NoError(t, record(client))
	}
	_, err := s.EndSession(t.Context(), ended, sessions[ended])
	require.NoError(t, err)
	require.NoError(t, record(ended))
	store.Close()
	for range 2 {
		require.Error(t, record(with))
		require.NoError(t, record(without))
		require.NoError(t, record(ended))
	}
}

func TestRulesOfASessionStay(t *testing.T) {
	s, _ := newBed(t)
	scope := testbed.Scope{Client: app.NewID()}
	changes := func() []error {
		own := fault.Rule{Match: fault.Match{Operation: "getJob"}, Effect: fault.Effect{Drop: true}}
		rules, err := s.ReplaceFaults(t.Context(), scope, 1, []fault.Rule{own, own}, "")
		id := app.NewID()
		if err == nil {
			id, _ = job.ParseID(rules[0].ID)
		}
		return []error{err, s.RemoveFault(t.Context(), scope, id), s.RemoveFaults(t.Context(), scope)}
	}
	n, err := s.StartSession(t.Context(), scope.Client, verdict.Session{Profile: fault.FlakyNetwork})
	require.NoError(t, err)
	profile, err := s.Faults(t.Context(), scope)
	require.NoError(t, err)
	require.NotEmpty(t, profile)
	for _, err := range changes() {
		require.Equal(t, job.CodeConflict, job.CodeOf(err))
	}
	left, err := s.Faults(t.Context(), scope)
	require.NoError(t, err)
	require.Equal(t, profile, left)

	id, err := job.ParseID(n.ID)
	require.NoError(t, err)
	_, err = s.EndSession(t.Context(), scope.Client, id)
	require.NoError(t, err)
	for _, err := range changes() {
		require.NoError(t, err)
	}
	_, err = s.StartSession(t.Context(), scope.Client, verdict.Session{})
	require.NoError(t, err)
	for _, err := range changes() {
		require.NoError(t, err, "the session has no profile")
	}
}

func TestLabelsOfRequests(t *testing.T) {
	s, _ := newBed(t)
	client := app.NewID()
	enter := func(label string) job.ID {
		scope, err := s.Enter(t.Context(), client, label, "r")
		require.NoError(t, err)
		require.Equal(t, client, scope.Client)
		return scope.Session
	}
	require.Zero(t, enter("a"), "no session is open")
	_, err := s.StartSession(t.Context(), client, verdict.Session{})
	require.NoError(t, err)
	begun := enter("a")
	require.NotZero(t, begun)
	require.Equal(t, begun, enter("a"))
	s.most = 2
	_, err = s.Enter(t.Context(), client, "one too many", "r")
	require.Equal(t, job.CodeValidationFailed, job.CodeOf(err))
}
