package jobs

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/app/maintenance"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

func TestSpansOfAJobFromItsSubmissionToItsEnd(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		w.start()
		s := w.service(10)
		w.Traced(func(ctx context.Context) {
			_, err := s.Submit(ctx, newRequest())
			require.NoError(t, err)
		})
		task := w.Queue.Sent()[0]
		require.NoError(t, w.process(task))
		id := task.JobID.String()

		submit := w.Span("submit job")
		w.RequireBelow(submit, w.Span("request"))
		require.Equal(t, map[string]any{
			"forgerun.job_id": id, "forgerun.client_id": apptest.ClientA.String(), "forgerun.request_id": "request-1",
			"forgerun.work_kind": "SUCCESS_FAST", "forgerun.attempt": int64(1), "forgerun.state": "QUEUED",
		}, apptest.Attributes(submit))
		require.Equal(t, apptest.TraceparentOf(submit), task.TraceParent)

		process := w.Span("process job")
		for name, state := range map[string]string{"assign job": "ASSIGNED", "run job": "SUCCEEDED", "report job": "SUCCEEDED"} {
			span := w.Span(name)
			w.RequireBelow(span, process)
			want := map[string]any{
				"forgerun.job_id": id, "forgerun.client_id": apptest.ClientA.String(), "forgerun.request_id": "request-1",
				"forgerun.work_kind": "SUCCESS_FAST", "forgerun.attempt": int64(1), "forgerun.state": state,
			}
			if name == "assign job" {
				want["forgerun.worker_id"] = w.workerID().String()
			}
			require.Equal(t, want, apptest.Attributes(span), name)
			require.Equal(t, codes.Unset, span.Status.Code, name)
		}
		require.Len(t, w.Names(), 6)
	})
}

// Storage is asked within the spans: its own come below them.
func TestSpansReachStorage(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		w.start()
		within := func(operation string) {
			w.Store.Hook(operation, apptest.Hook{Before: func(ctx context.Context) error {
				_, span := telemetry.Start(ctx, operation)
				span.End()
				return nil
			}})
		}
		parents := map[string]string{
			"InsertJob": "submit job", "Claim": "assign job", "Finish": "report job", "Retry": "retry job", "Cancel": "cancel job",
		}
		for operation := range parents {
			within(operation)
		}
		w.runner = apptest.Fixed(nil, apptest.Failure{Reason: job.DependencyFailed})
		s := w.service(10)
		w.Traced(func(ctx context.Context) {
			receipt, err := s.Submit(ctx, newRequest())
			require.NoError(t, err)
			require.NoError(t, w.process(w.Queue.Sent()[0]))
			_, err = s.Retry(ctx, apptest.ClientA, receipt.JobID)
			require.NoError(t, err)
			_, err = s.Cancel(ctx, apptest.ClientA, receipt.JobID)
			require.NoError(t, err)
		})
		for operation, parent := range parents {
			w.RequireBelow(w.Span(operation), w.Span(parent))
		}
	})
}

func TestWhatIsNotTracedHasNoSpans(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		w := newWorldJobs(t)
		w.start()
		s := w.service(10)
		_, err := s.Submit(context.Background(), newRequest(func(r *job.Request) { r.TraceParent = "of the client" }))
		require.NoError(t, err)
		task := w.Queue.Sent()[0]
		require.Equal(t, "of the client", task.TraceParent)
		require.NoError(t, w.process(task))
		_, err = s.Cancel(context.Background(), apptest.ClientA, task.JobID)
		require.NoError(t, err)
		w.Add(apptest.HeldByTheDead(job.Running))
		w.lead()
		apptest.Pass(2 * maintenance.RescuerInterval)
		require.Empty(t, w.Names())
	})
}
