package bulk

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// turns decides which operation is next, and how many items it may process.
type turns struct {
	budget tokens // shared by all operations
	work   map[job.ID]*work
	taken  int // number of turns so far
}

// work is the state of an open operation.
type work struct {
	budget tokens
	after  job.ID // job of the last processed item, or zero
	turn   int    // number of its last turn
}

// tokens is a token bucket; each token allows one item.
type tokens struct {
	n  float64
	at time.Time // time of the last refill; zero at first
}

func (t *tokens) refill(now time.Time, rate int) {
	if t.at.IsZero() {
		*t = tokens{1, now}
		return
	}
	t.n = min(t.n+max(0, now.Sub(t.at)).Seconds()*float64(rate), maxCatchUp.Seconds()*float64(rate))
	t.at = now
}

// begin starts a round: it refills the budgets, and forgets closed operations.
func (t *turns) begin(open []*job.Bulk, now time.Time) {
	known := t.work
	t.work = make(map[job.ID]*work, len(open))
	t.budget.refill(now, maxRate)
	for _, b := range open {
		w := known[b.ID]
		if w == nil {
			w = &work{}
		}
		w.budget.refill(now, b.Rate)
		t.work[b.ID] = w
	}
}

// next returns the index of the operation with the next turn. Owners take turns, regardless of how many operations each has. An owner's
// operations take turns too.
func (t *turns) next(open []*job.Bulk) (first int) {
	owners := map[job.BulkOwner]int{}
	for _, b := range open {
		owners[b.Owner] = max(owners[b.Owner], t.work[b.ID].turn)
	}
	for n, b := range open {
		owner, least := owners[b.Owner], owners[open[first].Owner]
		if owner < least || owner == least && t.work[b.ID].turn < t.work[open[first].ID].turn {
			first = n
		}
	}
	return first
}

func (t *turns) take(b *job.Bulk) {
	t.taken++
	t.work[b.ID].turn = t.taken
}

func (t *turns) allowed(b *job.Bulk) int { return int(min(t.budget.n, t.work[b.ID].budget.n)) }

func (t *turns) spend(b *job.Bulk, items int) {
	t.budget.n -= float64(items)
	t.work[b.ID].budget.n -= float64(items)
}
