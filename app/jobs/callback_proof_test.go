package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// fakeProofs has the URLs of proven webhooks, by client, and counts the reads.
type fakeProofs struct {
	urls  map[job.ID][]string
	err   error
	reads int
}

func (f *fakeProofs) ProvenURLs(_ context.Context, client job.ID) ([]string, error) {
	f.reads++
	return f.urls[client], f.err
}

func calling(url string) func(*job.Request) { return func(r *job.Request) { r.Callback = url } }

func TestCallbacksNeedAProvenOrigin(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(100)
		proofs := &fakeProofs{urls: map[job.ID][]string{
			apptest.ClientA: {"https://Receiver.example/in", "http://other.example:8080/"}, apptest.ClientB: {"https://b.example/"},
		}}
		s.proofs = proofs
		for _, url := range []string{
			"https://receiver.example/done?x=1", "https://receiver.example:443/", "HTTPS://RECEIVER.example/", "http://other.example:8080/x",
		} {
			_, err := s.Submit(context.Background(), newRequest(calling(url)))
			require.NoError(t, err, url)
		}
		for _, url := range []string{
			"http://receiver.example/", "https://receiver.example:8443/", "https://sub.receiver.example/", "https://receiver.example.evil.example/",
			"http://other.example/", "https://b.example/",
		} {
			_, err := s.Submit(context.Background(), newRequest(calling(url)))
			var invalid *job.Error
			require.ErrorAs(t, err, &invalid, url)
			require.Equal(t, job.CodeValidationFailed, invalid.Code)
			require.Len(t, invalid.Violations, 1)
			require.Equal(t, "/callback", invalid.Violations[0].Pointer)
			require.Contains(t, invalid.Violations[0].Detail, "Register a webhook there first")
		}

		proofs.reads = 0
		_, err := s.Submit(context.Background(), newRequest())
		require.NoError(t, err)
		_, _, err = s.SubmitBatch(context.Background(), newBatchRequest(newRequest(), newRequest()))
		require.NoError(t, err)
		require.Zero(t, proofs.reads, "without a callback nobody asks")
		b, _, err := s.SubmitBatch(context.Background(), newBatchRequest(
			newRequest(calling("https://receiver.example/")), newRequest(calling("https://b.example/")), newRequest()))
		require.NoError(t, err)
		require.Equal(t, 1, proofs.reads, "once for a batch")
		require.Nil(t, b.Items[0].Refusal)
		require.Equal(t, "/jobs/1/callback", b.Items[1].Refusal.Violations[0].Pointer)
		require.Nil(t, b.Items[2].Refusal)

		proofs.err = apptest.ErrStorage
		_, err = s.Submit(context.Background(), newRequest(calling("https://receiver.example/")))
		require.ErrorIs(t, err, apptest.ErrStorage)
		_, _, err = s.SubmitBatch(context.Background(), newBatchRequest(newRequest(calling("https://receiver.example/"))))
		require.ErrorIs(t, err, apptest.ErrStorage)
	})
}

// A request that was accepted gets its first answer, whatever became of the
// webhook meanwhile.
func TestRepetitionsNeedNoProof(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		s := w.service(100)
		proofs := &fakeProofs{urls: map[job.ID][]string{apptest.ClientA: {"https://receiver.example/"}}}
		s.proofs = proofs
		r := newRequest(calling("https://receiver.example/"), func(r *job.Request) { r.IdempotencyKey, r.Hash = "k", [32]byte{1} })
		first, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		proofs.urls = nil
		again, err := s.Submit(context.Background(), r)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, first.JobID, again.JobID)

		r.IdempotencyKey = "another"
		at := time.Now().Add(-time.Hour)
		r.Type, r.ExecutionAt = job.Deferred, &at
		_, err = s.Submit(context.Background(), r)
		var invalid *job.Error
		require.ErrorAs(t, err, &invalid)
		require.Len(t, invalid.Violations, 2, "everything at once: %v", invalid)
	})
}
