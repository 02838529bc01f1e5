package jobs

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/batches"
	"github.com/forgerun/forgerun/internal/telemetry"
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
		s.deps.Proofs = proofs
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
		s.deps.Proofs = proofs
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
		s.deps.Targets = apptest.NoLocals{}
		invalid := w.refused(s, calling("http://localhost/"), func(r *job.Request) { r.Emit = &job.Emission{Name: "x"} })
		require.Equal(t, job.CodeValidationFailed, invalid.Code)
		require.ElementsMatch(t, []string{"/callback", "/event"}, pointers(invalid.Violations))
		w.nothingDone()
		b := w.submitBatch(s, newBatchRequest(newRequest(), newRequest(calling("http://localhost/"))))
		require.Nil(t, b.Items[0].Refusal)
		require.Equal(t, []job.Violation{{Pointer: "/jobs/1/callback", Detail: "The host is a local one."}}, b.Items[1].Refusal.Violations)
		w.submit(s, calling("https://receiver.example/"))
		s.deps.Targets = nil
		w.submit(s, calling("http://localhost/")) // nobody looks
	})
}

// Every event of a job with a callback is delivered, whichever code recorded it.
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
			delivered := w.Queue.Delivered()
			require.Len(t, delivered, c.wakes)
			require.NotContains(t, delivered, job.ID{})
		})
	}
}

// wasPublished asserts that the end of a batch was logged, counted and published once.
func (w *worldJobs) wasPublished(b *job.Batch, status job.Status) {
	w.T.Helper()
	require.Len(w.T, w.Log.Lines(w.T, map[string]any{
		"action": "batch_completed", "request_id": "request-1", "client_id": apptest.ClientA.String(), "batch_id": b.ID.String(),
		"status": string(status),
	}), 1)
	require.Equal(w.T, 1.0, w.Metric(w.Metrics.BatchesCompleted.WithLabelValues(string(status))))
	published := 0
	for _, n := range w.Queue.Notifications() {
		if n == (job.Notification{ClientID: apptest.ClientA}) {
			published++
		}
	}
	require.Equal(w.T, 1, published)
}

// A batch is completed whoever ends its last job, and no sooner.
func TestBatchesAreCompleted(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*worldJobs, *Service, job.Task)
		want job.Status
	}{
		"worker": {func(w *worldJobs, _ *Service, t job.Task) { _ = w.handle(t) }, job.StatusCompleted},
		"cancel": {func(_ *worldJobs, s *Service, t job.Task) {
			_, _ = s.Cancel(context.Background(), apptest.ClientA, t.JobID)
		}, job.StatusCancelled},
		"rescuer": {func(w *worldJobs, _ *Service, t job.Task) {
			w.Store.Change(t.JobID, apptest.HeldByTheDead(job.Running))
			_ = w.giveBack()
		}, job.StatusFailed},
	} {
		run(t, name, func(t *testing.T, w *worldJobs, s *Service) {
			w.start()
			w.Background(w.completer.Run)
			b := w.submitBatch(s, newBatchRequest(newRequests(2)...))
			w.Queue.Notifications()
			for i, item := range b.Items {
				require.Nil(t, w.outcome(b))
				test.end(w, s, job.Task{JobID: item.JobID, Attempt: 1})
				apptest.Pass(batches.RestInterval)
				require.Equal(t, i+1, w.Store.Count("CompleteBatches"))
			}
			require.Equal(t, test.want, w.outcome(b).Status)
			w.wasPublished(b, test.want)
		})
	}
}

func TestCompletingIsRepeatedThroughTrouble(t *testing.T) {
	serving(t, func(t *testing.T, w *worldJobs, s *Service) {
		stop := w.Background(w.completer.Run)
		b := w.submitBatch(s, newBatchRequest(newRequest()))
		w.Queue.Notifications()
		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Fails(3, apptest.ErrStorage)})
		require.NoError(t, second(s.Cancel(context.Background(), apptest.ClientA, b.Items[0].JobID)), "nobody waits for it")
		apptest.Pass(2*batches.RetryInterval + 2*batches.RestInterval)
		require.Nil(t, w.outcome(b))
		apptest.Pass(batches.RetryInterval + batches.RestInterval)
		w.wasPublished(b, job.StatusCancelled)
		require.Len(t, w.Log.Lines(t, map[string]any{"level": "WARN", "msg": "cannot complete batches"}), 3)
		asked := w.Store.Count("CompleteBatches")
		apptest.Pass(time.Minute)
		require.Equal(t, asked, w.Store.Count("CompleteBatches"), "nothing is left to complete")

		w.Store.Hook("CompleteBatches", apptest.Hook{Before: apptest.Hangs})
		w.completer.Touch(b.ID)
		apptest.Pass(batches.RestInterval)
		w.completer.Touch(app.NewID()) // does not wait
		stop()                         // at once, although storage hangs
	})
}

// newTracingWorld is a world whose log names spans.
func newTracingWorld(t testing.TB) *worldJobs {
	w := newWorldJobs(t)
	w.Logger = slog.New(apptest.TracingHandler{Handler: slog.NewJSONHandler(w.Log, nil)})
	w.completer = batches.NewCompleter(w.Store, w.Queue, w.Metrics, w.Logger)
	w.worker = w.newWorker()
	return w
}

// process hands a task to the worker as the queue does: in a span that goes on from where the task says.
func (w *worldJobs) process(t job.Task) {
	w.T.Helper()
	ctx, span := telemetry.Continue(context.Background(), w.Tracer(), t.TraceParent, telemetry.SpanProcess)
	defer span.End()
	require.NoError(w.T, apptest.Trouble(w.worker.Handle(ctx, t)))
}

// within has an operation of storage make a span of its own.
func (w *worldJobs) within(operation string) {
	w.Store.Hook(operation, apptest.Hook{Before: func(ctx context.Context) error {
		_, span := telemetry.Start(ctx, operation)
		span.End()
		return nil
	}})
}

// A job that is submitted, runs, fails, is retried and canceled: each step has its span, below which storage is asked, with a link
// to where the job came from; and each transition has one line, which names the trace.
func TestTraceOfAJobsLife(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newTracingWorld(t)
		parents := map[string]string{
			"InsertJob": "submit job", "Claim": "assign job", "Finish": "report job", "Retry": "retry job", "Cancel": "cancel job",
		}
		for operation := range parents {
			w.within(operation)
		}
		w.runner = apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
		w.start()
		s := w.service(10)
		var id job.ID
		w.Traced(func(ctx context.Context) {
			receipt := apptest.Must(s.Submit(ctx, newRequest(deferred(time.Second), withKey("k"))))(t)
			id = receipt.JobID
		})
		task := w.Queue.Sent()[0]
		apptest.Pass(time.Second)
		w.process(task)
		retry := w.Traced(func(ctx context.Context) { require.NoError(t, second(s.Retry(ctx, apptest.ClientA, id))) })
		w.Traced(func(ctx context.Context) {
			require.NoError(t, second(s.Cancel(telemetry.WithRequest(ctx, "request-2"), apptest.ClientA, id)))
		})

		requests := w.SpansNamed("request")
		for operation, parent := range parents {
			w.RequireBelow(w.Span(operation), w.Span(parent))
		}
		attributes := func(name, state string, attempt int64) {
			t.Helper()
			all := apptest.Attributes(w.Span(name))
			require.Equal(t, []any{id.String(), apptest.ClientA.String(), "SUCCESS_FAST", attempt, state},
				[]any{all["forgerun.job_id"], all["forgerun.client_id"], all["forgerun.work_kind"], all["forgerun.attempt"],
					all["forgerun.state"]}, name)
			require.Equal(t, codes.Unset, w.Span(name).Status.Code, name)
		}
		attributes("submit job", "CREATED", 1)
		attributes("assign job", "ASSIGNED", 1)
		attributes("run job", "FAILED", 1)
		attributes("report job", "FAILED", 1)
		attributes("retry job", "QUEUED", 2)
		attributes("cancel job", "CANCELED", 2)
		require.Equal(t, "request-2", apptest.Attributes(w.Span("cancel job"))["forgerun.request_id"])
		require.NotEmpty(t, apptest.Attributes(w.Span("assign job"))["forgerun.worker_id"])
		for name, parent := range map[string]tracetest.SpanStub{
			"submit job": requests[0], "assign job": w.Span("process job"), "run job": w.Span("process job"), "report job": w.Span("process job"),
			"retry job": requests[1], "cancel job": requests[2],
		} {
			w.RequireBelow(w.Span(name), parent)
		}
		from := func(name string) string {
			require.Len(t, w.Span(name).Links, 1)
			return apptest.TraceparentOf(tracetest.SpanStub{SpanContext: w.Span(name).Links[0].SpanContext})
		}
		require.Equal(t, apptest.TraceparentOf(w.Span("submit job")), task.TraceParent)
		require.Equal(t, apptest.TraceparentOf(w.Span("retry job")), w.Queue.Sent()[1].TraceParent)
		require.Equal(t, retry, from("cancel job"), "whatever comes after a retry belongs to its request")
		w.linesOfAJobsLife(t, requests)
	})
}

func (w *worldJobs) linesOfAJobsLife(t *testing.T, requests tracetest.SpanStubs) {
	t.Helper()
	var steps [][4]any
	for _, line := range w.Log.Lines(t, map[string]any{"msg": "job transition"}) {
		trace := 0
		for i, request := range requests {
			if line["trace_id"] == request.SpanContext.TraceID().String() {
				trace = i + 1
			}
		}
		steps = append(steps, [4]any{line["action"], line["current_state"], line["next_state"], trace})
		request := "request-1"
		if line["action"] == "cancel" {
			request = "request-2" // it has a request of its own
		}
		require.Equal(t, []any{request, apptest.ClientA.String(), "SUCCESS_FAST"},
			[]any{line["request_id"], line["client_id"], line["work_kind"]})
		require.Contains(t, line, "job_id")
		require.Contains(t, line, "attempt")
	}
	require.Equal(t, [][4]any{
		{"submit", "", "CREATED", 1}, {"schedule", "CREATED", "QUEUED", 1},
		{"assign", "QUEUED", "ASSIGNED", 1}, {"run", "ASSIGNED", "RUNNING", 1}, {"finish", "RUNNING", "FAILED", 1},
		{"retry", "FAILED", "QUEUED", 2}, {"cancel", "QUEUED", "CANCELED", 3},
	}, steps)
}
