package jobs

import (
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// endBatch ends the span of a batch's submission.
func endBatch(span trace.Span, requestID string, b *job.Batch, err error) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(telemetry.RequestID.String(requestID))
	if b != nil {
		span.SetAttributes(telemetry.BatchID.String(b.ID.String()))
	}
	app.EndSpan(span, job.ID{}, "", err)
}
