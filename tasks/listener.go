package tasks

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

const (
	// pingEvery is how often a listener asks for a sign of life. It takes the
	// connection for broken when nothing came for that time and twice
	// Options.Timeout.
	pingEvery = time.Second
	// maxChannels is to how many channels one command subscribes.
	maxChannels = 500
)

// Listener hears the news of the clients that are watched, for one process, on
// one connection of its own. In a cluster that is a connection to any node: the
// nodes pass news on to each other.
//
// News may be lost at any time. After a connection broke, and when a client is
// watched anew, resumed tells from when on they are heard.
type Listener struct {
	redis     *Redis
	trouble   *circuit // logs; when to try again is decided in run
	connected atomic.Bool

	mu      sync.Mutex
	watched map[job.ID]struct{}
	changed map[job.ID]struct{} // watched or unwatched since the last reconcile
	wake    chan struct{}

	start   sync.Once
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	running sync.WaitGroup

	received func(job.Notification)
	resumed  func(client job.ID)
}

// NewListener makes a listener that hears nothing until Start.
func NewListener(r *Redis) *Listener {
	l := &Listener{
		redis:   r,
		trouble: newCircuit("hearing news", r.log, func(bool) {}),
		watched: map[job.ID]struct{}{},
		changed: map[job.ID]struct{}{},
		wake:    make(chan struct{}, 1),
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Start begins to listen. It does not wait for Redis, and a listener without
// Redis tries until Stop. A second Start, or one after Stop, does nothing.
//
// received gets each piece of news of watched clients; its Ended is never set.
// resumed gets a client from whose channel news are heard from now on, earlier
// ones perhaps not: at least once after each Watch, and after each break of the
// connection. They are called one after the other, from one goroutine. While
// they block nothing is heard, and Redis breaks the connection when too much
// piles up. They must not call Stop.
func (l *Listener) Start(received func(job.Notification), resumed func(client job.ID)) {
	l.start.Do(func() {
		l.received, l.resumed = received, resumed
		l.running.Go(l.run)
	})
}

// Stop ends listening. No function is called after it. While Redis hangs it
// takes up to Options.Timeout. It may be called again and before Start, and
// comes before Redis.Close.
func (l *Listener) Stop() {
	l.start.Do(func() {}) // a later Start starts nothing
	l.cancel()
	l.running.Wait()
}

// Connected reports whether Redis answers on the listener's connection. It is
// false before the first answer.
func (l *Listener) Connected() bool { return l.connected.Load() }

// Watch begins to hear the client's news, soon: resumed tells when. It does
// nothing for a client that is watched already. It never waits.
func (l *Listener) Watch(client job.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.watched[client]; !ok {
		l.watched[client] = struct{}{}
		l.change(client)
	}
}

// Unwatch ends hearing the client's news: what is received later is dropped. It
// does nothing for a client that is not watched. It never waits.
func (l *Listener) Unwatch(client job.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.watched[client]; ok {
		delete(l.watched, client)
		l.change(client)
	}
}

// change has the caller hold l.mu.
func (l *Listener) change(client job.ID) {
	l.changed[client] = struct{}{}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *Listener) isWatched(client job.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.watched[client]
	return ok
}

// run connects anew whenever the connection is broken.
func (l *Listener) run() {
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := l.listen()
		l.connected.Store(false)
		if l.ctx.Err() != nil {
			return
		}
		l.trouble.report(l.redis.failed("listen", err))
		if time.Since(began) > maxPause {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-l.ctx.Done():
			return
		}
	}
}

// listen hears news on one connection until it breaks. go-redis would connect
// anew by itself, but not when Redis hangs or the network swallows everything,
// and without telling; so each connection has a PubSub of its own.
func (l *Listener) listen() error {
	ctx, end := context.WithCancelCause(l.ctx)
	pubsub := l.redis.client.Subscribe(ctx)
	defer context.AfterFunc(ctx, func() { _ = pubsub.Close() })()
	var subscribing sync.WaitGroup
	defer func() {
		end(nil)
		_ = pubsub.Close()
		subscribing.Wait()
	}()
	if err := pubsub.Ping(ctx); err != nil { // this connects
		return err
	}
	subscribing.Go(func() {
		if err := l.subscribe(ctx, pubsub); err != nil {
			end(err)
		}
	})
	for {
		// A reply of which a part came in time is cut by the timeout: this
		// connection is not to be read again.
		reply, err := pubsub.ReceiveTimeout(ctx, pingEvery+2*l.redis.timeout)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if !l.connected.Swap(true) {
			l.trouble.report(nil)
		}
		l.handle(reply)
	}
}

// subscribe keeps the subscriptions of a new connection as they are wanted, and
// asks for signs of life, until ctx ends or the connection breaks.
func (l *Listener) subscribe(ctx context.Context, pubsub *redis.PubSub) error {
	l.mu.Lock()
	for client := range l.watched {
		l.changed[client] = struct{}{}
	}
	l.mu.Unlock()
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		if err := l.reconcile(ctx, pubsub); err != nil {
			return err
		}
		select {
		case <-l.wake:
		case <-ticker.C:
			if err := pubsub.Ping(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// reconcile sends what changed. A client that was unwatched and watched again
// is subscribed once more: Redis confirms that too, and resumed is called.
func (l *Listener) reconcile(ctx context.Context, pubsub *redis.PubSub) error {
	var wanted, unwanted []string
	l.mu.Lock()
	for client := range l.changed {
		if _, ok := l.watched[client]; ok {
			wanted = append(wanted, newsChannel(client))
		} else {
			unwanted = append(unwanted, newsChannel(client))
		}
	}
	l.changed = map[job.ID]struct{}{}
	l.mu.Unlock()
	if err := inChunks(ctx, wanted, pubsub.Subscribe); err != nil {
		return err
	}
	return inChunks(ctx, unwanted, pubsub.Unsubscribe)
}

// inChunks sends nothing for no channels: that would mean all.
func inChunks(ctx context.Context, channels []string, send func(context.Context, ...string) error) error {
	for chunk := range slices.Chunk(channels, maxChannels) {
		if err := send(ctx, chunk...); err != nil {
			return err
		}
	}
	return nil
}

func (l *Listener) handle(reply any) {
	switch reply := reply.(type) {
	case *redis.Subscription:
		client, err := clientOf(reply.Channel)
		if err == nil && reply.Kind == "subscribe" && l.isWatched(client) {
			l.resumed(client)
		}
	case *redis.Message:
		client, err := clientOf(reply.Channel)
		if err != nil || !l.isWatched(client) {
			return
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(reply.Payload, "\n"), "\n") {
			l.handleLine(client, line)
		}
	}
}

func (l *Listener) handleLine(client job.ID, line string) {
	n, err := parseNews(client, line)
	if err != nil {
		l.redis.metrics.news.WithLabelValues(resultBad).Inc()
		return
	}
	l.redis.metrics.news.WithLabelValues(resultReceived).Inc()
	l.received(n)
}
