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
	// that nobody had told of, and missedTime for how long.
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
	client redis.UniversalClient
	keys   queueKeys
	slots  int
	every  time.Duration // of the watch
	bell   *bell
	watch  chan struct{} // holds the token of who keeps watch
	quiet  chan struct{} // closed: nothing more is fetched

	running atomic.Int64 // tasks that were handed to asynq and are being handled

	mu     sync.Mutex
	ready  []fetched // taken, not handed over
	looked bool      // the latest fetch was the watch's
	missed time.Time // when the watch last found tasks
}

type fetched struct{ id, message string }

func newFetcher(client redis.UniversalClient, queue string, slots int, every time.Duration) *fetcher {
	return &fetcher{
		client: client, keys: keysOf(queue), slots: slots, every: every,
		bell: newBell(), watch: make(chan struct{}, 1), quiet: make(chan struct{}),
	}
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

// handled is called when a task that was handed over has been handled.
func (f *fetcher) handled() { f.running.Add(-1) }

func (f *fetcher) next(ctx context.Context, leaseEnd any) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.ready) == 0 && !f.isQuiet() {
		if err := f.fill(ctx, leaseEnd); err != nil {
			return "", err
		}
	}
	if len(f.ready) == 0 {
		return "", redis.Nil
	}
	task := f.ready[0]
	f.ready = f.ready[1:]
	f.running.Add(1)
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
func (f *fetcher) fill(ctx context.Context, leaseEnd any) error {
	n := min(maxFetch, max(1, f.slots-int(f.running.Load())))
	answer, err := fetchScript.Run(ctx, f.client, []string{f.keys.pending, f.keys.paused, f.keys.active, f.keys.lease},
		leaseEnd, f.keys.task, n).StringSlice()
	if err != nil {
		return err
	}
	if len(answer)%2 != 0 {
		return errFetched
	}
	f.ready = f.ready[:0]
	for task := range slices.Chunk(answer, 2) {
		f.ready = append(f.ready, fetched{id: task[0], message: task[1]})
	}
	if f.looked && len(f.ready) > 0 {
		f.missed = time.Now()
		f.bell.ring() // the other servers were not told either
	}
	f.looked = false
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
		f.looked = true
		f.mu.Unlock()
	}
}

// interval is short after the bell was not heard: it may be out of order.
func (f *fetcher) interval() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.missed) < missedTime {
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
	args := []any{f.keys.task}
	for _, task := range slices.Backward(f.ready) {
		args = append(args, task.id)
	}
	f.ready = nil
	_ = givebackScript.Run(context.Background(), f.client, []string{f.keys.active, f.keys.lease, f.keys.pending}, args...).Err()
}
