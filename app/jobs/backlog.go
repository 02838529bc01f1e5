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
	// Few admitted submissions wait longer than backlogWait. Accepted submissions are counted per interval of this length.
	backlogWait = time.Second
	// The limit is the highest count of the last backlogMemory intervals. When many clients connect at once, the counts are low for some
	// seconds. If the limit fell with the counts, most submissions would be refused and repeated.
	backlogMemory = 10
	// BacklogFloor is how many submissions may always wait, even if storage is slow. It allows bursts, and large group commits.
	BacklogFloor = 4096
	// BatchBacklogFloor is the floor for batches. It is lower, because only few batches are stored at the same time.
	BatchBacklogFloor = 64
	refusalInterval   = time.Second
)

// errTooManyWait is allocated once because it is returned very often under overload.
var errTooManyWait = &job.Error{Code: job.CodeQueueFull, RetryAfter: time.Second,
	Detail: "Too many submissions are waiting to be stored. This one was not processed; repeat it after Retry-After."}

// Backlog limits how many submissions wait in a process. The limit is the highest number of submissions accepted in one of the last ten
// seconds. By Little's law, a submission then waits at most about one second. Submissions above the limit are refused immediately.
// Otherwise they would be stored so late that their clients have given up.
//
// While storage is down, the limit falls to `floor`. Accepted submissions raise it again.
type Backlog struct {
	floor int
	clock app.Clock
	log   *slog.Logger

	mu      sync.Mutex
	waiting int
	began   time.Time
	served  [backlogMemory]int // submissions accepted in the current interval and the earlier ones
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

// Full returns an error if too many submissions wait. Call it before reading the body.
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

// Leave ends the wait of an admitted submission. `accepted` is true if the submission was stored.
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
