package ratelimit

import "time"

const (
	minute = time.Minute
	// slotWidth is the precision of counting. A request counts until a minute after the end of its slot. A client needs at most about 122
	// slots, for any limit.
	slotWidth = 500 * time.Millisecond
	// keepHeld is how long a process may use the tokens that it took. Afterwards, unused tokens go back to Redis. Redis counts a token for a
	// minute plus keepHeld, because a process may use the token at the end of keepHeld.
	keepHeld = 500 * time.Millisecond
)

// window counts the requests that passed in this process, by slot. `now` is a duration since a fixed start, and must not decrease from call
// to call.
type window struct {
	counts []count // oldest first, none empty
	total  int
}

type count struct {
	slot int64
	n    int
}

func (c count) over() time.Duration { return time.Duration(c.slot+1)*slotWidth + minute }

func (w *window) advance(now time.Duration) {
	gone := 0
	for gone < len(w.counts) && w.counts[gone].over() <= now {
		w.total -= w.counts[gone].n
		gone++
	}
	if gone > 0 {
		w.counts = w.counts[:copy(w.counts, w.counts[gone:])]
	}
}

func (w *window) add(now time.Duration, n int) {
	slot := int64(now / slotWidth)
	w.total += n
	if last := len(w.counts) - 1; last >= 0 && w.counts[last].slot >= slot {
		w.counts[last].n += n
		return
	}
	w.counts = append(w.counts, count{slot, n})
}

// pace returns the larger of this slot's and the previous slot's counts.
func (w *window) pace(now time.Duration) (most int) {
	for i := len(w.counts) - 1; i >= 0 && w.counts[i].slot >= int64(now/slotWidth)-1; i-- {
		most = max(most, w.counts[i].n)
	}
	return most
}

// freeIn returns how long it takes until the window has fewer than `limit` requests.
func (w *window) freeIn(now time.Duration, limit int) time.Duration {
	left := w.total
	for _, c := range w.counts {
		if left < limit {
			break
		}
		if left -= c.n; left < limit {
			return c.over() - now
		}
	}
	return 0
}

func (w *window) wholeIn(now time.Duration) time.Duration {
	if len(w.counts) == 0 {
		return 0
	}
	return w.counts[len(w.counts)-1].over() - now
}
