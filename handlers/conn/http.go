package conn

import (
	"context"
	"net"
	"net/http"
)

type contextKey struct{}

// InContext is the ConnContext of an http.Server whose handler is wrapped by
// UnderWay.
func InContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// UnderWay keeps a connection from being closed as an idle one while its
// request is answered.
func UnderWay(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(contextKey{}).(*Conn); ok {
			c.Begin()
			defer c.End()
		}
		next.ServeHTTP(w, r)
	})
}
