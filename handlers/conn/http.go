package conn

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

type contextKey struct{}

// InContext is the ConnContext of an http.Server whose handler is wrapped by UnderWay.
func InContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// bodyTime is how long a body may take to arrive.
const bodyTime = 10 * time.Second

// UnderWay keeps a connection from being closed to make room while a known caller's request is answered. The others are closed then,
// the oldest first, whatever they are at. A body must arrive in time.
func UnderWay(next http.Handler, known func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(contextKey{}).(*Conn); ok && known(r) {
			c.Begin()
			defer c.End()
		}
		if r.ContentLength != 0 {
			body := &timedBody{r.Body, http.NewResponseController(w).SetReadDeadline}
			_ = body.deadline(time.Now().Add(bodyTime)) // a recorder has none
			r.Body = body
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody ends the connection's read deadline with the body: afterwards the server watches for the end of the connection.
type timedBody struct {
	io.ReadCloser
	deadline func(time.Time) error
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.deadline(time.Time{})
	}
	return n, err
}
