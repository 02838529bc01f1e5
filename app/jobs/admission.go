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
	// admissionWait is how long a submission should wait for storage at most.
	admissionWait = time.Second
	// admissionMemory is for how many of these times what was accepted counts. While many clients connect at once little
	// is accepted for a few seconds; a bound that followed would have most of them refused, and they would
	// come again at once: on a machine that is busy refusing, little is accepted.
	admissionMemory = 10
	// AdmissionFloor is how many jobs may wait however slow storage is: a burst is
	// taken, and group commit always has enough to fill its statements.
	AdmissionFloor = 4096
	// BatchAdmissionFloor is the same of batches, of which few are stored at once.
	BatchAdmissionFloor = 64
	// refusalInterval is the time between two log lines of refusals.
	refusalInterval = time.Second
)

// errTooManyWait costs nothing to make: under overload it is the usual answer.
var errTooManyWait = &job.Error{Code: job.CodeQueueFull, RetryAfter: time.Second,
	Detail: "More submissions wait to be stored than the server can store in time. This one was not looked at; repeat it after Retry-After."}

// Admission bounds how many submissions wait inside a process at once. It goes
// by Little's law: what waits for a time is what comes in that time, so when no
// more may wait than were accepted in the best of the last ten seconds, no request waits much longer
// than a second. What is above is refused at once, which costs less than to store it,
// instead of being answered when its client has given up.
//
// The bound follows what storage does: it falls to a floor while storage stands
// still, and rises again with the first submissions that are accepted. It is not
// changed by submissions that are not valid, however many there are.
type Admission struct {
	floor int
	clock app.Clock
	log   *slog.Logger

	mu      sync.Mutex
	waiting int
	began   time.Time            // of the present interval of admissionWait
	served  [admissionMemory]int // accepted in the present interval, and in those before it
	refused int                  // since the last log line
	logged  time.Time            // when that was
}

// NewAdmission makes a bound, of floor at least. clock is time.Now if nil.
func NewAdmission(floor int, clock app.Clock, registry prometheus.Registerer, log *slog.Logger) *Admission {
	if clock == nil {
		clock = time.Now
	}
	a := &Admission{floor: floor, clock: clock, log: log}
	in := telemetry.In(registry)
	in.GaugeFunc("submissions_waiting", "Submissions that are being stored or wait for it in this process.", func() float64 {
		waiting, _ := a.look()
		return float64(waiting)
	})
	in.GaugeFunc("submissions_waiting_limit", "Submissions that may wait in this process; what comes on top is refused.", func() float64 {
		_, limit := a.look()
		return float64(limit)
	})
	return a
}

func (a *Admission) look() (waiting, limit int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(a.clock())
	return a.waiting, a.limit()
}

// Full refuses a submission whose body has not come yet, if too many wait.
func (a *Admission) Full() error { return a.admit(0) }

// Enter admits a submission, or refuses it with an error. One that was admitted
// must Leave.
func (a *Admission) Enter() error { return a.admit(1) }

func (a *Admission) admit(entering int) error {
	a.mu.Lock()
	now := a.clock()
	a.turn(now)
	limit := a.limit()
	if a.waiting < limit {
		a.waiting += entering
		a.mu.Unlock()
		return nil
	}
	a.refused++
	waiting, refused := a.waiting, 0
	if now.Sub(a.logged) >= refusalInterval {
		refused, a.refused, a.logged = a.refused, 0, now
	}
	a.mu.Unlock()
	if refused > 0 {
		a.log.LogAttrs(context.Background(), slog.LevelWarn, "submissions refused: too many wait",
			slog.String("action", "admit"), slog.String("error_code", string(errTooManyWait.Code)),
			slog.String("error_message", errTooManyWait.Detail),
			slog.Int("refused", refused), slog.Int("waiting", waiting), slog.Int("limit", limit))
	}
	return errTooManyWait
}

// Leave ends the wait of a submission that was admitted. accepted says whether
// it is stored.
func (a *Admission) Leave(accepted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(a.clock())
	a.waiting--
	if accepted {
		a.served[0]++
	}
}

// limit is how many may wait now.
func (a *Admission) limit() int { return max(a.floor, slices.Max(a.served[:])) }

// turn begins a new interval when the present one is over.
func (a *Admission) turn(now time.Time) {
	passed := now.Sub(a.began)
	if passed < admissionWait {
		return
	}
	a.began = now
	for range min(passed/admissionWait, admissionMemory) {
		copy(a.served[1:], a.served[:])
		a.served[0] = 0
	}
}
