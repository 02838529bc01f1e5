package tour

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	awayPatience = 10 * time.Second // with a service that does not answer
	busyPatience = 90 * time.Second // with one that asks to come back later
)

// errAway is wrapped when the service does not answer any more.
var errAway = errors.New("the service does not answer")

// errBusy is wrapped when the service goes on refusing.
var errBusy = errors.New("the service stays busy")

// monitored ends the tour when the service stays away or busy for too long, and
// holds requests back while it is down on purpose.
type monitored struct {
	http.RoundTripper
	abort context.CancelCauseFunc

	mu         sync.Mutex
	away, busy time.Time     // since when; zero: it is not
	down       chan struct{} // closed when the service is back; nil: it is not down
}

// RoundTrip sends one request.
func (m *monitored) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	down := m.down
	m.mu.Unlock()
	if down != nil {
		select {
		case <-down:
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
	response, err := m.RoundTripper.RoundTrip(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err != nil && r.Context().Err() != nil: // it was given up
	case err != nil:
		m.busy = time.Time{}
		if since(&m.away) > awayPatience {
			m.abort(fmt.Errorf("%w: %w", errAway, err))
		}
	case response.StatusCode == http.StatusTooManyRequests || response.StatusCode > http.StatusInternalServerError:
		m.away = time.Time{}
		if since(&m.busy) > busyPatience {
			m.abort(fmt.Errorf("%w: %s %s was answered %d for %s", errBusy, r.Method, r.URL.Path, response.StatusCode, busyPatience))
		}
	default:
		m.away, m.busy = time.Time{}, time.Time{}
	}
	return response, err
}

// since returns how long something has been so, which begins now if it was not.
func since(began *time.Time) time.Duration {
	if began.IsZero() {
		*began = time.Now()
	}
	return time.Since(*began)
}

// hold keeps requests back until the function that it returns is called.
func (m *monitored) hold() (release func()) {
	back := make(chan struct{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = back
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(back)
		m.down = nil
	}
}

// CloseIdleConnections closes what waits for nothing.
func (m *monitored) CloseIdleConnections() {
	if c, ok := m.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
