package receiver

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// Answer is what a receiver does with a try. With Hang it gives no answer until
// the sender gives up, with Reset it cuts the connection.
type Answer struct {
	Status      int           // 0: 204
	After       time.Duration // how late it comes
	Hang, Reset bool
	Share       float64 // of the tries, against the shares of the receiver's other answers
}

// status is what the sender gets to see, 0 for nothing.
func (a Answer) status() int {
	switch {
	case a.Hang || a.Reset:
		return 0
	case a.Status == 0:
		return http.StatusNoContent
	default:
		return a.Status
	}
}

// draw picks an answer by its arguments alone: the same seed meets the same answers.
func draw(answers []Answer, seed uint64, subject string, try int) Answer {
	var sum float64
	for _, a := range answers {
		sum += a.Share
	}
	if len(answers) == 0 {
		return Answer{}
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%s", seed, try, subject))
	at := sum * float64(binary.BigEndian.Uint64(hash[:])>>11) / (1 << 53) // from 0 to below sum
	for _, a := range answers {
		if at -= a.Share; at < 0 {
			return a
		}
	}
	return answers[len(answers)-1] // rounding, or no shares
}

// rememberedTries is how many messages' tries are counted at a time.
const rememberedTries = 100_000

// tries counts the tries of each message, and forgets the oldest messages.
type tries struct {
	mu     sync.Mutex
	counts map[string]int
	ring   []string // ids in counts, the oldest at next once it is full
	next   int
}

// add counts a try of the message and gives its number, from 1.
func (t *tries) add(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	if t.counts[id]++; t.counts[id] > 1 {
		return t.counts[id]
	}
	if len(t.ring) < rememberedTries {
		t.ring = append(t.ring, id)
		return 1
	}
	delete(t.counts, t.ring[t.next])
	t.ring[t.next] = id
	t.next = (t.next + 1) % rememberedTries
	return 1
}
