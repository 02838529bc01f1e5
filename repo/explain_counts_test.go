package repo_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
)

func init() {
	p := plans["load"]
	p.uses = []use{{"jobs_waiting", ""}, {"jobs_scheduled", ""}, {"jobs_held", ""}}
	plans["load"] = p
}

// What waits is counted in the indexes alone: there may be a million rows of it,
// of some hundred bytes each. Of what is held there is less.
func TestWhatWaitsIsCountedWithoutItsRows(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(seed)
	f.exec(`VACUUM jobs`)
	conn, err := f.store.Pool().Acquire(f.ctx())
	require.NoError(t, err)
	defer conn.Release()
	for name, indexes := range map[string]int{"load": 2, "loadByClient": 1, "unfinished": 1, "backlog": 2, "readSituation": 2} {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			counted := map[string]bool{}
			explain(t, f, conn, mode, repo.Statements[name], plans[name].args).walk(func(node plan) {
				if slices.Contains([]string{"jobs_waiting", "jobs_scheduled"}, node.Index) && node.Cond == "" {
					require.Equal(t, "Index Only Scan", node.NodeType, "%s, %s: %s", name, mode, node.Index)
					counted[node.Index] = true
				}
			})
			require.Len(t, counted, indexes, "%s, %s", name, mode)
		}
	}
}

// The look for labels that lie ahead is part of each migration, and made by a
// session without the store's settings: after a restore there are no statistics
// either.
func TestLabelsAheadAreFoundByIndex(t *testing.T) {
	t.Parallel()
	f := setup(t)
	f.exec(seed)
	for _, prepared := range []string{`ANALYZE`, `DELETE FROM pg_statistic`} {
		f.exec(prepared)
		var answer []struct{ Plan plan }
		require.NoError(t, json.Unmarshal([]byte(one[string](f, `EXPLAIN (FORMAT JSON) `+repo.AnyLabelAhead)), &answer))
		searched := map[string]int{}
		answer[0].Plan.walk(func(node plan) {
			require.NotEqual(t, "Seq Scan", node.NodeType, "%s: %s", prepared, node.Relation)
			searched[node.Index]++
		})
		require.Equal(t, 2, searched["events_client"], prepared)
		require.Equal(t, 2, searched["client_events_client"], prepared)
	}
}
