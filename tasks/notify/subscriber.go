package notify

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	// pingEvery is the interval of pings. A connection counts as broken if nothing arrives for pingEvery plus two Redis timeouts.
	pingEvery   = time.Second
	maxChannels = 500 // per subscribe command
)

// Subscriber receives messages of channels over its own connection. In a cluster it may connect to any node, because nodes forward
// messages. Messages may be lost at any time.
type Subscriber struct {
	client     redis.UniversalClient
	outages    *redisconn.Circuit
	redis      *redisconn.Redis
	received   func(channel, message string)
	subscribed func(channel string)
	connected  atomic.Bool

	mu      sync.Mutex
	wanted  map[string]bool
	changed map[string]bool // channels added or removed since the last call of reconcile
	changes chan struct{}

	start   sync.Once
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newSubscriber(r *redisconn.Redis, client redis.UniversalClient, log *slog.Logger) *Subscriber {
	s := &Subscriber{
		client: client, outages: redisconn.NewCircuit("receiving notifications", log, nil), redis: r,
		wanted: map[string]bool{}, changed: map[string]bool{}, changes: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// begin starts receiving messages. It does not wait for Redis, and retries until Stop. A second call, or a call after Stop, does nothing.
//
// begin calls `received` with each message of a wanted channel. It calls `subscribed` for a channel when its subscription begins, and
// again after each reconnection. Messages that were sent before the call of `subscribed` may be lost. One goroutine calls both
// functions, so both must return quickly: while they run, nothing is received, and Redis closes the connection if too many messages
// queue up. The functions must not call Stop.
func (s *Subscriber) begin(received func(channel, message string), subscribed func(channel string)) {
	s.start.Do(func() {
		s.received, s.subscribed = received, subscribed
		s.running.Go(s.run)
	})
}

// Stop stops receiving. It waits until `received` and `subscribed` (see begin) have returned, or until ctx ends. While Redis hangs, this
// takes up to the client's timeout. Call Stop before Redis.Close. A second call, or a call before Start, is allowed.
func (s *Subscriber) Stop(ctx context.Context) error {
	s.start.Do(func() {}) // a later Start does nothing
	s.cancel()
	return redisconn.WaitFor(ctx, s.running.Wait)
}

// Connected reports whether Redis responds on the subscriber's connection. It returns false before the first response.
func (s *Subscriber) Connected() bool { return s.connected.Load() }

// want subscribes to a channel or unsubscribes from it, in the background. Messages of unwanted channels are dropped.
func (s *Subscriber) want(channel string, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wanted[channel] == wanted {
		return
	}
	s.changed[channel] = true
	if s.wanted[channel] = wanted; !wanted {
		delete(s.wanted, channel)
	}
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

func (s *Subscriber) wants(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[channel]
}

func (s *Subscriber) run() {
	for pause := redisconn.FirstPause; ; pause = min(2*pause, redisconn.MaxPause) {
		began := time.Now()
		err := s.receive()
		s.connected.Store(false)
		if s.ctx.Err() != nil {
			return
		}
		s.outages.Report(s.redis.Failed("listen", err))
		if time.Since(began) > redisconn.MaxPause {
			pause = redisconn.FirstPause
		}
		redisconn.Pause(s.ctx, pause, nil)
	}
}

// receive receives over one connection until it breaks. Each connection gets a new PubSub, because go-redis reconnects silently and does
// not notice a hanging Redis.
func (s *Subscriber) receive() error {
	ctx, end := context.WithCancelCause(s.ctx)
	pubsub := s.client.Subscribe(ctx)
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
		if err := s.subscribe(ctx, pubsub); err != nil {
			end(err)
		}
	})
	for {
		// After a timeout, part of a reply may have been read, so this connection must not be used again.
		reply, err := pubsub.ReceiveTimeout(ctx, pingEvery+2*s.redis.Timeout)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if !s.connected.Swap(true) {
			s.outages.Report(nil)
		}
		s.handle(reply)
	}
}

// subscribe keeps the subscriptions of a connection up to date, and pings.
func (s *Subscriber) subscribe(ctx context.Context, pubsub *redis.PubSub) error {
	s.mu.Lock()
	maps.Copy(s.changed, s.wanted)
	s.mu.Unlock()
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		if err := s.reconcile(ctx, pubsub); err != nil {
			return err
		}
		select {
		case <-s.changes:
		case <-ticker.C:
			if err := pubsub.Ping(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// reconcile sends changed subscriptions to Redis. A channel that was removed and added again is subscribed again, so that `subscribed` is
// called.
func (s *Subscriber) reconcile(ctx context.Context, pubsub *redis.PubSub) error {
	var wanted, unwanted []string
	s.mu.Lock()
	for channel := range s.changed {
		if s.wanted[channel] {
			wanted = append(wanted, channel)
		} else {
			unwanted = append(unwanted, channel)
		}
	}
	clear(s.changed)
	s.mu.Unlock()
	for chunk := range slices.Chunk(wanted, maxChannels) {
		if err := pubsub.Subscribe(ctx, chunk...); err != nil {
			return err
		}
	}
	for chunk := range slices.Chunk(unwanted, maxChannels) {
		if err := pubsub.Unsubscribe(ctx, chunk...); err != nil {
			return err
		}
	}
	return nil
}

func (s *Subscriber) handle(reply any) {
	switch reply := reply.(type) {
	case *redis.Subscription:
		if reply.Kind == "subscribe" && s.wants(reply.Channel) {
			s.subscribed(reply.Channel)
		}
	case *redis.Message:
		if s.wants(reply.Channel) {
			s.received(reply.Channel, reply.Payload)
		}
	}
}
