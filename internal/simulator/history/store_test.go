package history_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

func TestJobFactsAreReadTogetherInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := history.Create(dir)
	require.NoError(t, err)
	const jobs, facts = 500, 6
	var writers sync.WaitGroup
	for j := range jobs {
		writers.Go(func() {
			for n := range facts {
				w.Add(history.Fact{Kind: history.Streamed, Job: fmt.Sprint("job-", j), Event: &history.Event{Seq: n + 1}})
			}
		})
	}
	writers.Wait()
	w.Add(history.Fact{Kind: history.Submitted, Ticket: 7, At: time.Unix(1, 0).UTC()})
	require.NoError(t, w.Close())

	seen, filled := 0, 0
	for b := range history.Buckets {
		of := 0
		jobs, err := w.Jobs(b)
		require.NoError(t, err)
		for job, list := range jobs {
			of++
			require.Len(t, list, facts, job)
			for n, f := range list {
				require.Equal(t, n+1, f.Event.Seq, job)
			}
		}
		seen += of
		filled += min(of, 1)
	}
	require.Equal(t, jobs, seen)
	require.Greater(t, filled, history.Buckets/2, "jobs are spread over the files")
	var loose []history.Fact
	require.NoError(t, w.Each(history.Loose, func(f history.Fact) error {
		loose = append(loose, f)
		return nil
	}))
	require.Equal(t, []history.Fact{{Kind: history.Submitted, Ticket: 7, At: time.Unix(1, 0).UTC()}}, loose)
}

func TestTruncatedHistoryIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := history.Create(dir)
	require.NoError(t, err)
	w.Add(history.Fact{Kind: history.Forbidden, Job: "a"})
	require.NoError(t, w.Close())
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	require.NoError(t, err)
	bucket := slices.IndexFunc(files, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.Size() > 0
	})
	path := files[bucket]
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content[:len(content)-5], 0o600))
	_, err = w.Jobs(bucket)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestCreateRefusesExistingHistory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := history.Create(dir)
	require.NoError(t, err)
	_, err = history.Create(dir)
	require.ErrorContains(t, err, "exists")
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "closed twice")
	w.Add(history.Fact{Kind: history.Forbidden})
	loose, err := w.Jobs(history.Loose)
	require.NoError(t, err)
	require.Empty(t, loose, "facts after Close are dropped")
}
