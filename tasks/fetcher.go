package tasks

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
	// missedWatch is how often a consumer looks for tasks after it found some
	// that nobody told of, and missedTime for how long, unless it is told of some.
	missedWatch = 5 * time.Millisecond
	missedTime  = 2 * time.Second
)

//go:embed fetch.lua
var fetchSource string

//go:embed giveback.lua
var givebackSource string

var (
	fetchScript    = redis.NewScript(fetchSource)
	givebackScript = redis.NewScript(givebackSource)
)

var errFetched = errors.New("an answer that no fetch has")

// fetcher takes tasks out of Redis for all asynq servers of a consumer: as many
// in one exchange as there are free slots for, so none of them waits here while
// it could run elsewhere. While there are none, the servers wait for the bell;
// one of them keeps watch and looks at times without having been told.
type fetcher struct {
	client   redis.UniversalClient
	patience time.Duration // with an exchange
	keys     queueKeys
	slots    *slots
	every    time.Duration // of the watch
	bell     *bell
	watch    chan struct{} // holds the token of who keeps watch
	quiet    chan struct{} // closed: nothing more is fetched

	heard atomic.Int64 // when somebody told of tasks, in nanoseconds since 1970

	mu       sync.Mutex
	ready    []fetched // taken, not handed over
	leaseEnd any       // of those
	failed   bool      // the latest exchange
	looked   time.Time // when the watch decided to look; zero: somebody has looked since
	missed   time.Time // when the watch last decided to look and there were tasks
}

type fetched struct{ id, message string }

func newFetcher(client redis.UniversalClient, patience time.Duration, queue string, concurrency int, every time.Duration) *fetcher {
	return &fetcher{
		client: client, patience: patience, keys: keysOf(queue), slots: &slots{total: concurrency}, every: every,
		bell: newBell(), watch: make(chan struct{}, 1), quiet: make(chan struct{}),
	}
}

// tell is called when somebody tells of tasks.
func (f *fetcher) tell() {
	f.heard.Store(time.Now().UnixNano())
	f.bell.ring()
}

// fetch hands over a task; redis.Nil says that there was none for a while.
// leaseEnd is when Redis takes whoever has the task for lost.
func (f *fetcher) fetch(ctx context.Context, leaseEnd any) (message string, err error) {
	rung := f.bell.listen()
	message, err = f.next(ctx, leaseEnd)
	if errors.Is(err, redis.Nil) {
		f.await(rung)
	}
	return message, err
}

func (f *fetcher) next(ctx context.Context, leaseEnd any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	looked := f.looked
	f.looked = time.Time{}
	if len(f.ready) == 0 && !f.isQuiet() {
		err := f.fill(ctx, leaseEnd)
		if f.failed = err != nil; f.failed {
			return "", err
		}
		if !looked.IsZero() && len(f.ready) > 0 {
			f.missed = looked
			f.bell.ring() // the other servers were not told either
		}
	}
	if len(f.ready) == 0 || f.isQuiet() { // silence puts back what came too late
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

// fill asks Redis. The caller holds f.mu, and has a free slot.
//
// Redis may execute what it answers too late, and then nobody has the tasks until
// their lease ends. So it is asked once, and for a single task after a failure.
func (f *fetcher) fill(ctx context.Context, leaseEnd any) error {
	n := min(maxFetch, max(1, f.slots.free()))
	if f.failed {
		n = 1
	}
	ctx, cancel := context.WithTimeout(ctx, f.patience) // no time is left to ask again
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

// await waits until there may be tasks: rung is closed, or it is time to look.
func (f *fetcher) await(rung <-chan struct{}) {
	select {
	case <-rung:
	case <-f.quiet:
	case f.watch <- struct{}{}:
		f.keepWatch(rung)
		<-f.watch
	}
}

func (f *fetcher) keepWatch(rung <-chan struct{}) {
	timer := time.NewTimer(f.interval())
	defer timer.Stop()
	select {
	case <-rung:
	case <-f.quiet:
	case <-timer.C:
		f.mu.Lock()
		f.looked = time.Now()
		f.mu.Unlock()
	}
}

// interval is short while the bell may be out of order: there were tasks, and it
// was not heard since.
func (f *fetcher) interval() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.missed) < missedTime && f.heard.Load() < f.missed.UnixNano() {
		return min(missedWatch, f.every)
	}
	return f.every
}

// silence puts back what was taken and not handed over, after quiet was closed.
// What cannot be put back is run again when its lease has ended, like the tasks
// of a process that was killed.
func (f *fetcher) silence() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ready) == 0 {
		return
	}
	args := []any{f.keys.task, f.leaseEnd}
	for _, task := range slices.Backward(f.ready) {
		args = append(args, task.id)
	}
	f.ready = nil
	ctx, cancel := context.WithTimeout(context.Background(), f.patience)
	defer cancel()
	_ = givebackScript.Run(ctx, f.client, []string{f.keys.active, f.keys.lease, f.keys.pending}, args...).Err()
}
