package repo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// origins gives what each way to read a job says of its origin.
func (f *fixture) origins(id job.ID) map[string]job.Origin {
	f.t.Helper()
	all := map[string]job.Origin{"job": f.job(id).Origin()}
	var err error
	all["attempts"], _, err = f.store.Attempts(f.ctx(), f.client, id)
	require.NoError(f.t, err)
	report, err := f.store.Report(f.ctx(), f.client, id, 0)
	require.NoError(f.t, err)
	all["report"] = report.Origin
	for _, o := range f.events(id, 0, 100).Events {
		all["event "+o.Name] = o.Origin
	}
	for _, o := range (&follower{f: f}).readAll(1000) {
		if o.JobID == id {
			all["client's event "+o.Name] = o.Origin
		}
	}
	for _, m := range f.outcomes(100) {
		if m.JobID == id {
			all["outcome"] = m.Origin
		}
	}
	return all
}

func TestScenarioIsReadEverywhere(t *testing.T) {
	t.Parallel()
	f := setup(t, streaming)
	l := f.run()
	f.finish(success(l))
	want := f.job(l.JobID).Origin()
	definition := f.job(l.JobID).Definition
	require.Equal(t, job.Scenario{
		WorkKind: definition.WorkKind, DurationMS: definition.DurationMS, ExpectedOutcome: definition.ExpectedOutcome,
	}, want.Scenario)
	require.Positive(t, want.Scenario.DurationMS)
	origins := f.origins(l.JobID)
	require.Len(t, origins, 4+2*5, "each event in both histories")
	for where, got := range origins {
		require.Equal(t, want, got, where)
	}
}

// What a damaged definition said is left out, and fails no statement.
func TestScenarioOfADamagedDefinition(t *testing.T) {
	t.Parallel()
	f := setup(t, streaming)
	for _, definition := range []string{`NULL`, `'null'`, `'[]'`, `'"x"'`, `'{"duration_ms": "x"}'`} {
		id := f.submit()
		f.exec(`UPDATE jobs SET definition = `+definition+` WHERE job_id = $1`, id.String())
		f.finish(failure(f.claim(id, 1), job.DefinitionInvalid))
		for where, got := range f.origins(id) {
			require.Equal(t, job.Scenario{WorkKind: f.job(id).WorkKind}, got.Scenario, "%s %s", where, definition)
		}
	}
}
