package repo_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

type traces struct {
	*tracetest.InMemoryExporter
	provider *sdktrace.TracerProvider
}

func newTraces() traces {
	kept := tracetest.NewInMemoryExporter()
	return traces{kept, sdktrace.NewTracerProvider(sdktrace.WithSyncer(kept))}
}

func (s traces) store(c *repo.Config) { c.TracerProvider = s.provider }

func (s traces) request(ctx context.Context, name string) (context.Context, trace.Span) {
	return s.provider.Tracer("test").Start(ctx, name)
}

func (s traces) below(parent trace.SpanContext) (found tracetest.SpanStubs) {
	for _, span := range s.GetSpans() {
		if span.Parent.SpanID() == parent.SpanID() && span.Parent.TraceID() == parent.TraceID() {
			found = append(found, span)
		}
	}
	return found
}

// only returns the span with the name directly below the parent; there must be exactly one.
func (s traces) only(t *testing.T, parent trace.SpanContext, name string) tracetest.SpanStub {
	found := slices.DeleteFunc(s.below(parent), func(span tracetest.SpanStub) bool { return span.Name != name })
	require.Len(t, found, 1, name)
	return found[0]
}

func attributes(span tracetest.SpanStub) map[attribute.Key]any {
	found := map[attribute.Key]any{}
	for _, a := range span.Attributes {
		found[a.Key] = a.Value.AsInterface()
	}
	return found
}

// Callers that share a statement each have a span. The statement's span is a child of the first one; the others link to it. Untraced
// callers have no span.
func TestSpansOfASharedStatement(t *testing.T) {
	spans := newTraces()
	f := setup(t, patient, spans.store)
	release := f.occupyInserts()
	spans.Reset()
	var requests []trace.Span
	var inserts []<-chan error
	for _, traced := range []bool{false, true, true, true, false} {
		ctx := f.ctx()
		if traced {
			var span trace.Span
			ctx, span = spans.request(ctx, "request")
			requests = append(requests, span)
		}
		inserts = append(inserts, begin(func() error { return errOf(f.store.InsertJob(ctx, f.submission())) }))
		f.awaitQueued("insert", len(inserts))
	}
	release()
	for _, inserted := range inserts {
		require.NoError(t, <-inserted)
	}

	first := spans.only(t, requests[0].SpanContext(), "commit insert")
	require.EqualValues(t, 5, attributes(first)[telemetry.BatchSize], "untraced callers count too")
	require.Empty(t, first.Links)
	require.Equal(t, trace.SpanKindClient, spans.only(t, first.SpanContext, "query INSERT").SpanKind)
	for _, request := range requests[1:] {
		other := spans.only(t, request.SpanContext(), "commit insert")
		require.EqualValues(t, 5, attributes(other)[telemetry.BatchSize])
		require.Empty(t, spans.below(other.SpanContext))
		require.Len(t, other.Links, 1)
		require.True(t, other.Links[0].SpanContext.Equal(first.SpanContext))
	}
	commits := 0
	for _, span := range spans.GetSpans() {
		require.True(t, span.Parent.IsValid(), "%s: no trace begins here", span.Name)
		if strings.HasPrefix(span.Name, telemetry.SpanCommit) {
			commits++
		}
	}
	require.Equal(t, len(requests), commits)
	traceID := requests[0].SpanContext().TraceID().String()
	testkit.Eventually(t, "the exemplar has the trace", func() bool { return slices.Contains(f.exemplars("group_commit_seconds"), traceID) })
}

func (f *fixture) exemplars(histogram string) (traces []string) {
	for _, family := range must(f.registry.Gather())(f.t) {
		if family.GetName() != histogram {
			continue
		}
		for _, m := range family.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if e := b.GetExemplar(); e != nil {
					traces = append(traces, e.GetLabel()[0].GetValue())
				}
			}
		}
	}
	return traces
}

// Each operation on a job has a span, and every statement is a child of one.
func TestSpansOfEachOperation(t *testing.T) {
	spans := newTraces()
	f := setup(t, spans.store)
	hook := f.subscribe(job.EventCreated)
	sub := f.submission(keyed("planted-key"), func(s *job.Submission) { s.Job.Params = json.RawMessage(`{"planted":"parameter"}`) })
	id := sub.Job.ID
	lease := job.ClaimID{JobID: id, Attempt: 1, Fence: 1}
	for _, step := range []struct {
		name, statement string
		do              func(ctx context.Context) error
	}{
		{"insert", "INSERT", func(ctx context.Context) error { return errOf(f.store.InsertJob(ctx, sub)) }},
		{"claim", "UPDATE", func(ctx context.Context) error { return errOf(f.store.Claim(ctx, f.worker, id, 1)) }},
		{"start", "UPDATE", func(ctx context.Context) error { return errOf(f.store.Start(ctx, lease)) }},
		{"finish", "UPDATE", func(ctx context.Context) error { return errOf(f.store.Finish(ctx, failure(lease, job.FailedOnce))) }},
		{"retry", "UPDATE", func(ctx context.Context) error { return errOf(f.store.Retry(ctx, f.client, id, 1, 0, oneTrace)) }},
		{"cancel", "UPDATE", func(ctx context.Context) error { return errOf(f.store.Cancel(ctx, f.client, id)) }},
		{"pickup", "DELETE", func(ctx context.Context) error {
			_, _, err := f.store.ClaimDelivery(ctx, newID(), time.Hour)
			return err
		}},
		{"record", "INSERT", func(ctx context.Context) error {
			return errOf(f.store.RecordDelivery(ctx, delivered(f.claimAll(hook, 1)[0])))
		}},
	} {
		ctx, request := spans.request(f.ctx(), "request")
		require.NoError(t, step.do(ctx), step.name)
		commit := spans.only(t, request.SpanContext(), "commit "+step.name)
		require.EqualValues(t, 1, attributes(commit)[telemetry.BatchSize])
		require.Equal(t, codes.Unset, commit.Status.Code)
		statement := attributes(spans.only(t, commit.SpanContext, "query "+step.statement))
		require.Contains(t, statement["db.query.text"], step.statement+" ")
	}
	ctx, request := spans.request(f.ctx(), "request")
	must(f.store.Job(ctx, f.client, id))(t)
	spans.only(t, request.SpanContext(), "query SELECT")

	text := must(json.Marshal(spans.GetSpans()))(t)
	for _, planted := range []string{"planted", id.String(), f.client.String(), "pgx.query.parameters"} {
		require.NotContains(t, string(text), planted, "spans have no parameters")
	}
}

func TestSpansOfFailedCalls(t *testing.T) {
	spans := newTraces()
	f := setup(t, spans.store)
	stale, broken := f.run(), f.submission(func(s *job.Submission) { s.Job.MaxAttempts = -1 })
	stale.Fence++
	for name, call := range map[string]func(ctx context.Context) error{
		"finish": func(ctx context.Context) error { return errOf(f.store.Finish(ctx, success(stale))) },
		"cancel": func(ctx context.Context) error { return errOf(f.store.Cancel(ctx, f.client, newID())) },
		"insert": func(ctx context.Context) error { return errOf(f.store.InsertJob(ctx, broken)) },
	} {
		ctx, request := spans.request(f.ctx(), "request")
		err := call(ctx)
		require.Error(t, err)
		commit := spans.only(t, request.SpanContext(), "commit "+name)
		if name != "insert" {
			require.Equal(t, codes.Unset, commit.Status.Code, "%s: an answer, not a fault", name)
			continue
		}
		require.Equal(t, sdktrace.Status{Code: codes.Error, Description: err.Error()}, commit.Status)
		require.Equal(t, codes.Error, spans.only(t, commit.SpanContext, "query INSERT").Status.Code)
	}
}

// The span of a caller ends when the caller leaves, even if its item is written later.
func TestSpansOfCanceledCalls(t *testing.T) {
	spans := newTraces()
	f := setup(t, patient, spans.store)
	unlock := f.lock(`LOCK TABLE jobs IN SHARE MODE`)
	leaving, leave := context.WithCancel(f.ctx())
	ctx, request := spans.request(leaving, "request")
	inserted := begin(func() error { return errOf(f.store.InsertJob(ctx, f.submission())) })
	f.awaitBlocked(1)
	leave()
	require.ErrorIs(t, <-inserted, context.Canceled)
	require.Equal(t, codes.Error, spans.only(t, request.SpanContext(), "commit insert").Status.Code)
	unlock()
	f.await(`SELECT EXISTS (SELECT FROM jobs)`)
}
