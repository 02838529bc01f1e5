package jobs

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

const (
	// backlogWait is about the longest time that an admitted submission waits to be stored. Accepted submissions are counted per interval
	// of this length.
	backlogWait = time.Second
	// The limit is the highest count of accepted submissions in one of the last backlogMemory intervals. If many clients connect at once,
	// few submissions are accepted for some seconds. If the limit fell immediately, most submissions would be refused, and refusing the
	// retries would keep the machine busy.
	backlogMemory = 10
	// BacklogFloor is how many submissions may always wait, even if storage is slow. It absorbs bursts, and lets a group commit store many
	// submissions per statement.
	BacklogFloor = 4096
	// BatchBacklogFloor is the floor for batches. It is lower because few batches are stored at once.
	BatchBacklogFloor = 64
	refusalInterval   = time.Second
)

// errTooManyWait is allocated once because it is returned very often under overload.
var errTooManyWait = &job.Error{Code: job.CodeQueueFull, RetryAfter: time.Second,
	Detail: "Too many submissions are waiting to be stored. This one was not processed; repeat it after Retry-After."}

// Backlog limits how many submissions wait in a process. The limit is the highest number that was accepted within one of the last ten
// seconds. By Little's law, no submission then waits much longer than a second. Submissions above the limit are refused immediately.
// Storing them after their clients have given up would cost more.
//
// The limit falls to a floor while storage is down, and rises with the first accepted submissions. Invalid submissions do not change it.
type Backlog struct {
	floor int
	clock app.Clock
	log   *slog.Logger

	mu      sync.Mutex
	waiting int
	began   time.Time
	served  [backlogMemory]int // accepted in the current and earlier intervals
	refused int
	logged  time.Time
}

// NewBacklog returns a Backlog with a limit of at least `floor`.
func NewBacklog(floor int, clock app.Clock, registry prometheus.Registerer, log *slog.Logger) *Backlog {
	b := &Backlog{floor: floor, clock: clock, log: log}
	in := telemetry.In(registry)
	in.GaugeFunc("submissions_waiting", "Submissions in this process that are being stored or wait to be stored.", func() float64 {
		waiting, _ := b.look()
		return float64(waiting)
	})
	in.GaugeFunc("submissions_waiting_limit", "Maximum number of waiting submissions in this process; more are refused.", func() float64 {
		_, limit := b.look()
		return float64(limit)
	})
	return b
}

func (b *Backlog) look() (waiting, limit int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(b.clock())
	return b.waiting, b.limit()
}

// Full refuses a submission before its body arrives, if too many wait.
func (b *Backlog) Full() error { return b.admit(0) }

// Enter admits a submission or returns an error. Call Leave after each admission.
func (b *Backlog) Enter() error { return b.admit(1) }

func (b *Backlog) admit(entering int) error {
	b.mu.Lock()
	now := b.clock()
	b.turn(now)
	limit := b.limit()
	if b.waiting < limit {
		b.waiting += entering
		b.mu.Unlock()
		return nil
	}
	b.refused++
	waiting, refused := b.waiting, 0
	if now.Sub(b.logged) >= refusalInterval {
		refused, b.refused, b.logged = b.refused, 0, now
	}
	b.mu.Unlock()
	if refused > 0 {
		b.log.LogAttrs(context.Background(), slog.LevelWarn, "submissions refused: too many wait",
			slog.String("action", "admit"), slog.String("error_code", string(errTooManyWait.Code)),
			slog.String("error_message", errTooManyWait.Detail),
			slog.Int("refused", refused), slog.Int("waiting", waiting), slog.Int("limit", limit))
	}
	return errTooManyWait
}

// Leave ends the wait of an admitted submission. `accepted` reports whether it was stored.
func (b *Backlog) Leave(accepted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.turn(b.clock())
	b.waiting--
	if accepted {
		b.served[0]++
	}
}

func (b *Backlog) limit() int { return max(b.floor, slices.Max(b.served[:])) }

func (b *Backlog) turn(now time.Time) {
	passed := now.Sub(b.began)
	if passed < backlogWait {
		return
	}
	b.began = now
	for range min(passed/backlogWait, backlogMemory) {
		copy(b.served[1:], b.served[:])
		b.served[0] = 0
	}
}
