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

func TestCallbacksNeedAProvenOrigin(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		proofs := &fakeProofs{urls: map[job.ID][]string{
			apptest.ClientA: {"https://Receiver.example/in", "http://other.example:8080/"}, apptest.ClientB: {"https://b.example/"},
		}}
		s.proofs = proofs
		for _, url := range []string{
			"https://receiver.example/done?x=1", "https://receiver.example:443/", "HTTPS://RECEIVER.example/", "http://other.example:8080/x",
		} {
			w.submit(s, calling(url))
		}
		for _, url := range []string{
			"http://receiver.example/", "https://receiver.example:8443/", "https://sub.receiver.example/", "https://receiver.example.evil.example/",
			"http://other.example/", "https://b.example/",
		} {
			invalid := w.refused(s, calling(url))
			require.Equal(t, job.CodeValidationFailed, invalid.Code)
			require.Equal(t, []string{"/callback"}, pointers(invalid.Violations), url)
			require.Contains(t, invalid.Violations[0].Detail, "Register a webhook there first")
		}

		proofs.reads = 0
		w.submit(s)
		w.submitBatch(s, newBatchRequest(newRequest()))
		require.Zero(t, proofs.reads, "without a callback nobody asks")
		b := w.submitBatch(s, newBatchRequest(newRequest(calling("https://receiver.example/")), newRequest(calling("https://b.example/"))))
		require.Equal(t, 1, proofs.reads, "once for a batch")
		require.Nil(t, b.Items[0].Refusal)
		require.Equal(t, "/jobs/1/callback", b.Items[1].Refusal.Violations[0].Pointer)

		proofs.err = apptest.ErrStorage
		require.Equal(t, job.CodeStorageUnavailable, w.refused(s, calling("https://receiver.example/")).Code)
		_, _, err := s.SubmitBatch(context.Background(), newBatchRequest(newRequest(calling("https://receiver.example/"))))
		require.ErrorIs(t, err, apptest.ErrStorage)
	})
}

// A request that was accepted gets its first answer, whatever became of the webhook meanwhile.
func TestRepetitionsNeedNoProof(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		proofs := &fakeProofs{urls: map[job.ID][]string{apptest.ClientA: {"https://receiver.example/"}}}
		s.proofs = proofs
		first := w.submit(s, calling("https://receiver.example/"), withKey("k"))
		proofs.urls = nil
		again := w.submit(s, calling("https://receiver.example/"), withKey("k"))
		require.True(t, again.Replayed)
		require.Equal(t, first.JobID, again.JobID)
		both := w.refused(s, calling("https://receiver.example/"), withKey("another"), deferred(-time.Hour))
		require.ElementsMatch(t, []string{"/execution_at", "/callback"}, pointers(both.Violations), "everything at once")
	})
}

func TestCallbacksToForbiddenTargetsAreRefused(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		s.targets = apptest.NoLocals{}
		invalid := w.refused(s, calling("http://localhost/"), func(r *job.Request) { r.Emit = &job.Emission{Name: "x"} })
		require.Equal(t, job.CodeValidationFailed, invalid.Code)
		require.ElementsMatch(t, []string{"/callback", "/event"}, pointers(invalid.Violations))
		w.nothingDone()
		b := w.submitBatch(s, newBatchRequest(newRequest(), newRequest(calling("http://localhost/"))))
		require.Nil(t, b.Items[0].Refusal)
		require.Equal(t, []job.Violation{{Pointer: "/jobs/1/callback", Detail: "The host is a local one."}}, b.Items[1].Refusal.Violations)
		w.submit(s, calling("https://receiver.example/"))
		s.targets = nil
		w.submit(s, calling("http://localhost/")) // nobody looks
	})
}

// What is recorded of a job with a callback wakes the delivery workers, whoever recorded it.
func TestEventsOfJobsWithACallbackWakeTheWorkers(t *testing.T) {
	const url = "https://receiver.example"
	callback := func(r *apptest.Row) { r.Callback = url }
	for name, c := range map[string]struct {
		wakes int
		do    func(w *worldJobs, s *Service)
	}{
		"submit": {1, func(w *worldJobs, s *Service) { w.submit(s, calling(url)) }},
		"batch": {1, func(w *worldJobs, s *Service) {
			w.submitBatch(s, newBatchRequest(newRequest(), newRequest(calling(url))))
		}},
		"cancel": {1, func(w *worldJobs, s *Service) {
			require.NoError(w.T, second(s.Cancel(context.Background(), apptest.ClientA, w.Add(callback).JobID)))
		}},
		"retry": {1, func(w *worldJobs, s *Service) {
			require.NoError(w.T, second(s.Retry(context.Background(), apptest.ClientA, w.Add(apptest.FailedJob, callback).JobID)))
		}},
		"execute": {3, func(w *worldJobs, _ *Service) {
			w.start()
			require.NoError(w.T, w.handle(w.Add(callback))) // assigned, running, succeeded
		}},
		"without a callback": {0, func(w *worldJobs, s *Service) {
			w.start()
			w.submit(s)
			require.NoError(w.T, w.handle(w.Add()))
		}},
	} {
		apptest.Run(t, name, func(t *testing.T) {
			w := newWorldJobs(t)
			c.do(w, w.service(10))
			woken := w.Queue.Woken()
			require.Len(t, woken, c.wakes)
			for _, client := range woken {
				require.Equal(t, apptest.ClientA, client)
			}
		})
	}
}
