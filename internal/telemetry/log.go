package telemetry

import (
	"context"
	"log/slog"
	"time"
)

// LogInfo logs at level Info, but does not look up the source line of the call. The logs do not show this line, and the lookup would take
// a quarter of the time of a log call.
func LogInfo(ctx context.Context, log *slog.Logger, message string, attrs []slog.Attr) {
	if !log.Enabled(ctx, slog.LevelInfo) {
		return
	}
	r := slog.NewRecord(time.Now(), slog.LevelInfo, message, 0)
	r.AddAttrs(attrs...)
	_ = log.Handler().Handle(ctx, r) // slog.Logger ignores the error, too
}
