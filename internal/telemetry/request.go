package telemetry

import "context"

type requestKey struct{}

// WithRequest stores the id of the request that ctx serves, for log lines and spans.
func WithRequest(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestKey{}, id)
}

// RequestOf returns the id of the request that ctx serves; "" for none.
func RequestOf(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}
