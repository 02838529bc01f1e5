package operator

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

// Marker gives a mark that changes whenever something has happened.
type Marker interface {
	Mark(ctx context.Context) (string, error)
}

const (
	maxLive    = 100              // streams of one process
	markEvery  = time.Second      // while there are listeners, and no less than markRest times what it takes
	markRest   = 20               // 5 % of a connection
	beatEvery  = 2 * time.Second  // so that a listener notices soon that nothing comes any more
	checkEvery = 15 * time.Second // whether the listener may still listen; and what one that is refused waits
	writeLimit = 10 * time.Second
)

// live notifies listeners that something has happened: it asks storage once for all of them, and not at all while
// there are none. Each page then reads what it shows.
type live struct {
	marker Marker
	log    *slog.Logger

	mu        sync.Mutex
	listeners map[chan struct{}]bool
	end       context.CancelFunc // of the loop; nil while there are no listeners
	closed    chan struct{}
}

func newLive(m Marker, log *slog.Logger) *live {
	return &live{marker: m, log: log, listeners: map[chan struct{}]bool{}, closed: make(chan struct{})}
}

// listen gives a channel with at most one entry: something has happened since the last was taken.
func (l *live) listen() (changed chan struct{}, leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.listeners) >= maxLive {
		return nil, nil, &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: checkEvery,
			Detail: "As many streams are open as this process may have. Ask again and again instead, or another process."}
	}
	changed = make(chan struct{}, 1)
	l.listeners[changed] = true
	if l.end == nil {
		ctx, end := context.WithCancel(context.Background())
		l.end = end
		go l.run(ctx)
	}
	return changed, func() { l.leave(changed) }, nil
}

func (l *live) leave(changed chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.listeners, changed)
	if len(l.listeners) == 0 && l.end != nil {
		l.end()
		l.end = nil
	}
}

// close ends all streams.
func (l *live) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
}

func (l *live) run(ctx context.Context) {
	last, failed := "", false
	for {
		began := time.Now()
		mark, err := l.marker.Mark(ctx)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failed {
				l.log.WarnContext(ctx, "operators' pages are not notified of changes", "action", "live", "error_message", err.Error())
			}
		case mark != last:
			l.notify()
			last = mark
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(markEvery, markRest*took)):
		}
	}
}

func (l *live) notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for changed := range l.listeners {
		select {
		case changed <- struct{}{}:
		default: // it has not taken the last one
		}
	}
}

// stream answers with events until the listener leaves or the process stops: changed and beat, with empty data.
func (a *API) stream(w http.ResponseWriter, c *call) error {
	changed, leave, err := a.live.listen()
	if err != nil {
		return err
	}
	defer leave()
	controller := http.NewResponseController(w)
	send := func(text string) bool {
		deadline := controller.SetWriteDeadline(time.Now().Add(writeLimit))
		if deadline != nil && !errors.Is(deadline, http.ErrNotSupported) {
			return false
		}
		_, err := w.Write([]byte(text))
		return err == nil && controller.Flush() == nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of proxies
	w.WriteHeader(http.StatusOK)
	beat, check := time.NewTicker(beatEvery), time.NewTicker(checkEvery)
	defer beat.Stop()
	defer check.Stop()
	for ok := send("retry: 3000\n\n"); ok; {
		select {
		case <-changed:
			ok = send("event: changed\ndata: {}\n\n")
		case <-beat.C:
			ok = send("event: beat\ndata: {}\n\n")
		case <-check.C:
			ok = !c.ended()
		case <-c.Context().Done():
			return nil
		case <-a.live.closed:
			return nil
		}
	}
	return nil
}

// Close ends streams, which would keep a process from stopping.
func (a *API) Close() { a.live.close() }
