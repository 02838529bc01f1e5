package batch

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxFetch is how many tasks one exchange takes at most.
	maxFetch = 32
	// missedWatch is how often a consumer looks after it found tasks without a wake-up, and missedTime for how long, unless one comes.
	missedWatch = 5 * time.Millisecond
	missedTime  = 2 * time.Second
)

//go:embed fetch.lua
var fetchSource string

var fetchScript = redis.NewScript(fetchSource)

var errFetched = errors.New("an answer that no fetch has")

// fetcher takes tasks out of Redis for all asynq servers of a consumer: as many in one exchange as there are free slots, so none
// waits here while it could run elsewhere. While there are none, the servers wait for a wake-up, and one of them polls.
type fetcher struct {
	client   redis.UniversalClient
	finisher finisher
	timeout  time.Duration // of an exchange
	keys     queueKeys
	slots    *slots
	every    time.Duration // of the watch
	signal   *signal
	watch    chan struct{} // holds the token of who keeps watch
	quieted  sync.Once
	quiet    chan struct{} // closed: nothing more is fetched

	held    atomic.Bool  // nothing is fetched for now
	wokenAt atomic.Int64 // when a wake-up came, in nanoseconds since 1970

	mu       sync.Mutex
	ready    []fetched // taken, not handed over
	leaseEnd any       // of those
	failed   bool      // the latest exchange
	looked   time.Time // when the watch decided to look; zero: somebody has looked since
	missed   time.Time // when the watch last decided to look and there were tasks
}

type fetched struct{ id, message string }

func newFetcher(client redis.UniversalClient, cfg Config) *fetcher {
	return &fetcher{
		client: client, finisher: newFinisher(client, cfg.Queue), timeout: cfg.Timeout, keys: keysOf(cfg.Queue),
		slots: &slots{total: cfg.Concurrency}, every: cfg.CheckInterval,
		signal: newSignal(), watch: make(chan struct{}, 1), quiet: make(chan struct{}),
	}
}

// wakeUp is called when somebody says that there are tasks.
func (f *fetcher) wakeUp() {
	f.wokenAt.Store(time.Now().UnixNano())
	f.signal.fire()
}

// fetch hands over a task; redis.Nil says that there was none for a while. leaseEnd is that of asynq's lease.
func (f *fetcher) fetch(ctx context.Context, leaseEnd any) (message string, err error) {
	woken := f.signal.wait()
	message, err = f.next(ctx, leaseEnd)
	if errors.Is(err, redis.Nil) {
		f.await(woken)
	}
	return message, err
}

func (f *fetcher) next(ctx context.Context, leaseEnd any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	looked := f.looked
	f.looked = time.Time{}
	if f.held.Load() {
		return "", redis.Nil
	}
	if len(f.ready) == 0 && !f.isQuiet() {
		err := f.fill(ctx, leaseEnd)
		if f.failed = err != nil; f.failed {
			return "", err
		}
		if !looked.IsZero() && len(f.ready) > 0 {
			f.missed = looked
			f.signal.fire() // the other servers were not woken either
		}
	}
	if len(f.ready) == 0 || f.isQuiet() || f.held.Load() { // silence and hold put back what came too late
		return "", redis.Nil
	}
	task := f.ready[0]
	f.ready = f.ready[1:]
	f.slots.handOver()
	return task.message, nil
}

func (f *fetcher) isQuiet() bool {
	select {
	case <-f.quiet:
		return true
	default:
		return false
	}
}

// fill asks Redis. The caller holds f.mu, and has a free slot. Redis may execute a fetch whose answer comes too late, and then the
// tasks wait for the end of their lease. So it is asked once, and for a single task after a failure.
func (f *fetcher) fill(ctx context.Context, leaseEnd any) error {
	n := min(maxFetch, max(1, f.slots.free()))
	if f.failed {
		n = 1
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout) // no time is left to ask again
	defer cancel()
	answer, err := fetchScript.Run(ctx, f.client, []string{f.keys.pending, f.keys.paused, f.keys.active, f.keys.lease},
		leaseEnd, f.keys.task, n).StringSlice()
	if err != nil {
		return err
	}
	if len(answer)%2 != 0 {
		return errFetched
	}
	f.ready, f.leaseEnd = f.ready[:0], leaseEnd
	for task := range slices.Chunk(answer, 2) {
		f.ready = append(f.ready, fetched{id: task[0], message: task[1]})
	}
	return nil
}

// await waits until there may be tasks: woken is closed, or it is time to look.
func (f *fetcher) await(woken <-chan struct{}) {
	select {
	case <-woken:
	case <-f.quiet:
	case f.watch <- struct{}{}:
		f.keepWatch(woken)
		<-f.watch
	}
}

func (f *fetcher) keepWatch(woken <-chan struct{}) {
	timer := time.NewTimer(f.interval())
	defer timer.Stop()
	select {
	case <-woken:
	case <-f.quiet:
	case <-timer.C:
		f.mu.Lock()
		f.looked = time.Now()
		f.mu.Unlock()
	}
}

// interval is short while wake-ups may be lost: there were tasks, and none came since.
func (f *fetcher) interval() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.missed) < missedTime && f.wokenAt.Load() < f.missed.UnixNano() {
		return min(missedWatch, f.every)
	}
	return f.every
}

// hold stops fetching, and puts back what was taken and not handed over; or goes on.
func (f *fetcher) hold(on bool) {
	if f.held.Swap(on) == on {
		return
	}
	if on {
		f.putBack()
		return
	}
	f.signal.fire()
}

// silence ends fetching, and puts back what was taken and not handed over.
func (f *fetcher) silence() {
	f.quieted.Do(func() { close(f.quiet) })
	f.putBack()
}

// putBack puts back what was taken. What cannot be put back is run again when its lease has ended, as after a kill.
func (f *fetcher) putBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ready) == 0 {
		return
	}
	now, back := time.Now().UnixNano(), []handled(nil)
	for _, task := range slices.Backward(f.ready) {
		back = append(back, handled{task.id, now, taskBack, f.leaseEnd})
	}
	f.ready = nil
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	_ = f.finisher.end(ctx, back)
}

// signal wakes those who wait for tasks in this process.
type signal struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next fire
}

func newSignal() *signal { return &signal{next: make(chan struct{})} }

// wait gives what the next fire closes. It is called before looking for tasks, so that none is missed.
func (s *signal) wait() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

func (s *signal) fire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.next)
	s.next = make(chan struct{})
}
