package tasks

import (
	"sync"
	"time"

	"github.com/forgerun/forgerun/job"
)

const (
	// hintPause is how long a client rests after a hint: what happens meanwhile
	// makes one more.
	hintPause = 5 * time.Millisecond
	// maxWoken is how many clients may wait or rest.
	maxWoken = 65536
)

// hints are the clients to hint at. Each waits once, however often it was
// woken, and rests for hintPause after it was taken. It reads no clock.
type hints struct {
	added chan struct{} // a word that somebody waits

	mu      sync.Mutex
	clients map[job.ID]bool // that wait or rest: whether woken since it was taken
	ready   []job.ID        // that wait and do not rest, the first woken first
	resting []rest          // the first taken first
}

type rest struct {
	client job.ID
	until  time.Time
}

func newHints() *hints {
	return &hints{added: make(chan struct{}, 1), clients: map[job.ID]bool{}}
}

// add has the client wait. It reports false when there is no room.
func (h *hints) add(client job.ID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.clients[client]; known {
		h.clients[client] = true
		return true
	}
	if len(h.clients) >= maxWoken {
		return false
	}
	h.clients[client] = true
	h.ready = append(h.ready, client)
	select {
	case h.added <- struct{}{}:
	default:
	}
	return true
}

// take gives the clients that wait and have rested, in the place of those in
// taken, and how long the next one rests, 0 for none. Who is woken from now on
// is taken once more: so take comes before the hint.
func (h *hints) take(now time.Time, taken []job.ID) ([]job.ID, time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rouse(now)
	taken = append(taken[:0], h.ready...)
	h.ready = h.ready[:0]
	for _, client := range taken {
		h.clients[client] = false
		h.resting = append(h.resting, rest{client, now.Add(hintPause)})
	}
	if len(h.resting) == 0 {
		return taken, 0
	}
	return taken, h.resting[0].until.Sub(now)
}

// rouse ends the rests that are over: who was woken meanwhile waits, the others
// are forgotten.
func (h *hints) rouse(now time.Time) {
	over := 0
	for _, r := range h.resting {
		if now.Before(r.until) {
			break
		}
		if h.clients[r.client] {
			h.ready = append(h.ready, r.client)
		} else {
			delete(h.clients, r.client)
		}
		over++
	}
	h.resting = append(h.resting[:0], h.resting[over:]...)
}
