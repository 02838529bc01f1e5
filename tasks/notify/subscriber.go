package notify

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/tasks/redisconn"
)

const (
	// pingEvery is how often a subscriber pings. A connection is broken when nothing came for that time and twice Options.Timeout.
	pingEvery   = time.Second
	maxChannels = 500 // that one command subscribes to
)

// SubscriberConfig says who gets what a subscriber receives. The functions are called one after the other, from one goroutine.
// While they block nothing is received, and Redis breaks the connection when too much piles up. They must not call Stop.
type SubscriberConfig struct {
	Client  redis.UniversalClient // makes the connection
	Outages *redisconn.Circuit    // logs them
	// Received gets each message from a channel that is wanted.
	Received func(channel, message string)
	// Subscribed gets a channel whose messages are received from now on, earlier ones perhaps not: at least once after each Add,
	// and after each break of the connection. May be nil.
	Subscribed func(channel string)
}

// Subscriber receives what is published to channels, on one connection of its own, in a cluster to any node: they pass messages
// on to each other. Messages may be lost at any time.
type Subscriber struct {
	cfg       SubscriberConfig
	redis     *redisconn.Redis
	connected atomic.Bool

	mu      sync.Mutex
	wanted  map[string]struct{}
	changed map[string]struct{} // added or removed since the last reconcile
	changes chan struct{}

	start   sync.Once
	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewSubscriber makes a subscriber that receives nothing until Start.
func NewSubscriber(r *redisconn.Redis, cfg SubscriberConfig, channels ...string) *Subscriber {
	s := &Subscriber{
		cfg: cfg, redis: r, wanted: map[string]struct{}{}, changed: map[string]struct{}{}, changes: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, channel := range channels {
		s.Add(channel)
	}
	return s
}

// Start begins to receive. It does not wait for Redis, which is tried until Stop. A second Start, or one after Stop, does nothing.
func (s *Subscriber) Start() { s.start.Do(func() { s.running.Go(s.run) }) }

// Stop ends receiving, within ctx; no function is called afterwards. While Redis hangs it takes up to the client's timeout. It may
// be called again and before Start, and comes before Redis.Close.
func (s *Subscriber) Stop(ctx context.Context) error {
	s.start.Do(func() {}) // a later Start starts nothing
	s.cancel()
	return redisconn.WaitFor(ctx, s.running.Wait)
}

// Connected reports whether Redis answers on the subscriber's connection. It is false before the first answer.
func (s *Subscriber) Connected() bool { return s.connected.Load() }

// Add begins to receive from the channel, soon: Subscribed says when. Adding again does nothing. It never waits.
func (s *Subscriber) Add(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[channel]; !ok {
		s.wanted[channel] = struct{}{}
		s.change(channel)
	}
}

// Remove ends receiving from the channel: what comes later is dropped. It never waits.
func (s *Subscriber) Remove(channel string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.wanted[channel]; ok {
		delete(s.wanted, channel)
		s.change(channel)
	}
}

// change has the caller hold s.mu.
func (s *Subscriber) change(channel string) {
	s.changed[channel] = struct{}{}
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

func (s *Subscriber) wants(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.wanted[channel]
	return ok
}

// run connects anew whenever the connection is broken.
func (s *Subscriber) run() {
	for pause := redisconn.FirstPause; ; pause = min(2*pause, redisconn.MaxPause) {
		began := time.Now()
		err := s.receive()
		s.connected.Store(false)
		if s.ctx.Err() != nil {
			return
		}
		s.cfg.Outages.Report(s.redis.Failed("listen", err))
		if time.Since(began) > redisconn.MaxPause {
			pause = redisconn.FirstPause
		}
		redisconn.Pause(s.ctx, pause, nil)
	}
}

// receive receives on one connection until it breaks. Each has a PubSub of its own: go-redis reconnects silently, and not when
// Redis hangs or the network drops everything.
func (s *Subscriber) receive() error {
	ctx, end := context.WithCancelCause(s.ctx)
	pubsub := s.cfg.Client.Subscribe(ctx)
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
		// After a timeout a reply may have been read in part: this connection is not to be read again.
		reply, err := pubsub.ReceiveTimeout(ctx, pingEvery+2*s.redis.Timeout)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if !s.connected.Swap(true) {
			s.cfg.Outages.Report(nil)
		}
		s.handle(reply)
	}
}

// subscribe keeps the subscriptions of a new connection as they are wanted, and pings, until ctx ends or the connection breaks.
func (s *Subscriber) subscribe(ctx context.Context, pubsub *redis.PubSub) error {
	s.mu.Lock()
	for channel := range s.wanted {
		s.changed[channel] = struct{}{}
	}
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

// reconcile sends what changed. A channel that was removed and added again is subscribed to once more, and confirmed once more.
func (s *Subscriber) reconcile(ctx context.Context, pubsub *redis.PubSub) error {
	var wanted, unwanted []string
	s.mu.Lock()
	for channel := range s.changed {
		if _, ok := s.wanted[channel]; ok {
			wanted = append(wanted, channel)
		} else {
			unwanted = append(unwanted, channel)
		}
	}
	s.changed = map[string]struct{}{}
	s.mu.Unlock()
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

func (s *Subscriber) handle(reply any) {
	switch reply := reply.(type) {
	case *redis.Subscription:
		if s.cfg.Subscribed != nil && reply.Kind == "subscribe" && s.wants(reply.Channel) {
			s.cfg.Subscribed(reply.Channel)
		}
	case *redis.Message:
		if s.wants(reply.Channel) {
			s.cfg.Received(reply.Channel, reply.Payload)
		}
	}
}
