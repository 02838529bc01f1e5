package history_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

func TestFactsOfAJobComeBackTogetherAndInOrder(t *testing.T) {
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
	require.EqualValues(t, jobs*facts+1, w.Facts())
	require.NoError(t, w.Close())

	r, err := history.Open(dir)
	require.NoError(t, err)
	seen, filled := 0, 0
	for b := range history.Buckets {
		of := 0
		jobs, err := r.Jobs(b)
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
	require.NoError(t, r.Each(history.Loose, func(f history.Fact) error {
		loose = append(loose, f)
		return nil
	}))
	require.Equal(t, []history.Fact{{Kind: history.Submitted, Ticket: 7, At: time.Unix(1, 0).UTC()}}, loose)
}

func TestAHistoryThatIsCutOffIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := history.Create(dir)
	require.NoError(t, err)
	w.Add(history.Fact{Kind: history.Forbidden, Job: "a"})
	require.NoError(t, w.Close())
	path := filepath.Join(dir, fmt.Sprintf("facts-%03d.jsonl", history.BucketOf("a")))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, content[:len(content)-5], 0o600))
	r, err := history.Open(dir)
	require.NoError(t, err)
	_, err = r.Jobs(history.BucketOf("a"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

func TestAHistoryIsNotMixedWithAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := history.Create(dir)
	require.NoError(t, err)
	_, err = history.Create(dir)
	require.ErrorContains(t, err, "exists")
	require.NoError(t, w.Close())
	require.NoError(t, w.Close(), "closed twice")
	w.Add(history.Fact{Kind: history.Forbidden})
	require.Zero(t, w.Facts(), "added after the end")

	_, err = history.Open(t.TempDir())
	require.ErrorContains(t, err, "no history")
}
