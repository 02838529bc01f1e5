package operator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

const (
	maxLive    = 100              // limit of streams per process
	markEvery  = time.Second      // minimum pause between two polls
	markRest   = 20               // minimum pause between two polls, in multiples of the last poll's duration
	beatEvery  = 2 * time.Second  // interval of "beat" events, so that listeners soon detect a dead connection
	checkEvery = 15 * time.Second // interval between checks of a listener's session; also the Retry-After when maxLive is reached
	writeLimit = 10 * time.Second
)

// live tells listeners, such as open console pages, that something has changed. One loop polls storage for all listeners. The loop runs
// only while there are listeners.
type live struct {
	mark func(context.Context) (string, error) // returns a text that changes with every change in storage
	log  *slog.Logger

	mu        sync.Mutex
	listeners map[chan struct{}]bool
	end       context.CancelFunc // stops the loop
}

func newLive(mark func(context.Context) (string, error), log *slog.Logger) *live {
	return &live{mark: mark, log: log, listeners: map[chan struct{}]bool{}}
}

// listen returns a channel that receives a value after a change. Call `leave` to stop listening.
func (l *live) listen() (changed chan struct{}, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.listeners) == 0 {
		ctx, end := context.WithCancel(context.Background())
		l.end = end
		go l.run(ctx)
	}
	changed = make(chan struct{}, 1)
	l.listeners[changed] = true
	return changed, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if delete(l.listeners, changed); len(l.listeners) == 0 {
			l.end()
		}
	}
}

func (l *live) run(ctx context.Context) {
	last, failed := "", false
	for {
		began := time.Now()
		mark, err := l.mark(ctx)
		took := time.Since(began)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			if !failed {
				l.log.WarnContext(ctx, "cannot notify the operators' pages of changes", "action", "live", "error_message", err.Error())
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
		default: // the last notification is still pending
		}
	}
}

// stream sends the events "changed" and "beat", with empty data, until the listener leaves or the process stops.
func (a *API) stream(r *httpkit.Request) error {
	r.Set(fiber.HeaderContentType, httpkit.EventStream)
	c, ok := r.Context().Conn().(*conn.Conn)
	if r.Method() == fiber.MethodHead {
		return nil
	}
	release, err := a.Waits.Acquire(job.ID{})
	switch {
	case job.CodeOf(err) == job.CodeRateLimited:
		return &job.Error{Code: job.CodeStorageUnavailable, RetryAfter: checkEvery,
			Detail: "This process has reached its limit of streams. Poll instead, or use another process."}
	case err != nil:
		return err
	case !ok:
		release()
		return nil
	}
	changed, leave := a.live.listen()
	end := sync.OnceFunc(func() {
		leave()
		release()
	})
	r.Set("X-Accel-Buffering", "no") // proxies must not buffer the stream
	head := r.Head().WithContext(a.Waits.Context())
	r.Hijack(c, &end, func(top []byte) {
		defer end()
		defer func() { _ = c.Close() }()
		a.follow(c, top, changed, func() bool {
			_, refusal := a.deps.Guard.Check(head)
			return refusal != nil && refusal.Status == fiber.StatusUnauthorized
		})
	})
	return nil
}

func (a *API) follow(c *conn.Conn, top []byte, changed <-chan struct{}, refused func() bool) {
	ctx, gone := context.WithCancel(a.Waits.Context())
	defer gone()
	defer c.WhenGone(gone)()
	send := func(text string) bool {
		_ = c.SetWriteDeadline(time.Now().Add(writeLimit))
		_, err := c.Write([]byte(text))
		return err == nil
	}
	beat, check := time.NewTicker(beatEvery), time.NewTicker(checkEvery)
	defer beat.Stop()
	defer check.Stop()
	for ok := send(string(top) + "retry: 3000\n\n"); ok; {
		select {
		case <-changed:
			ok = send("event: changed\ndata: {}\n\n")
		case <-beat.C:
			ok = send("event: beat\ndata: {}\n\n")
		case <-check.C:
			ok = !refused()
		case <-ctx.Done():
			return
		}
	}
}
