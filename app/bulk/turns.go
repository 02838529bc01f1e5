package bulk

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

type turns struct {
	budget tokens // shared by all operations
	work   map[job.ID]*work
	taken  int
}

type work struct {
	budget tokens
	after  job.ID
	turn   int
}

// tokens is a token bucket; each token allows one item.
type tokens struct {
	n  float64
	at time.Time
}

func (t *tokens) refill(now time.Time, rate int) {
	if t.at.IsZero() {
		*t = tokens{1, now}
		return
	}
	t.n = min(t.n+max(0, now.Sub(t.at)).Seconds()*float64(rate), maxCatchUp.Seconds()*float64(rate))
	t.at = now
}

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

// next returns the index of the operation to continue. Owners take turns, and so do the operations of one owner.
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
