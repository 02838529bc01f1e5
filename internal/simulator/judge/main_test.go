package judge

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// write keeps the world's facts on disk.
func (w *world) write(t testing.TB) *history.Reader {
	t.Helper()
	dir := t.TempDir()
	out, err := history.Create(dir)
	require.NoError(t, err)
	for _, f := range w.facts {
		out.Add(f)
	}
	require.NoError(t, out.Close())
	r, err := history.Open(dir)
	require.NoError(t, err)
	return r
}

// Jobs and Each make the world a reader of itself: disks are slow. All jobs are
// in the first bucket.
func (w *world) Jobs(bucket int, fn func(map[string][]history.Fact) error) error {
	if bucket > 0 {
		return nil
	}
	jobs := map[string][]history.Fact{}
	for _, f := range w.facts {
		if f.Job != "" {
			jobs[f.Job] = append(jobs[f.Job], f)
		}
	}
	return fn(jobs)
}

func (w *world) Each(bucket int, fn func(history.Fact) error) error {
	if bucket != history.Loose {
		return nil
	}
	for _, f := range w.facts {
		if f.Job == "" {
			if err := fn(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *world) judge(t testing.TB) *Verdict {
	t.Helper()
	v, err := Judge(t.Context(), w, w.run)
	require.NoError(t, err)
	return v
}
