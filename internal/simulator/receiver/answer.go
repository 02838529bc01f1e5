package receiver

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// Answer is what a receiver does with a try. Without a status it is 204.
type Answer = scenario.Answer

// shown is what the sender gets to see, 0 for nothing.
func shown(a Answer) int {
	if a.Hang || a.Reset {
		return 0
	}
	return cmp.Or(a.Status, http.StatusNoContent)
}

// draw picks an answer by its arguments alone: the same seed meets the same answers.
func draw(answers []Answer, seed uint64, subject string, try int) Answer {
	var sum scenario.Share
	for _, a := range answers {
		if try <= a.First {
			return a
		}
		sum += a.Share
	}
	if len(answers) == 0 {
		return Answer{}
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%s", seed, try, subject))
	at := sum * scenario.Share(binary.BigEndian.Uint64(hash[:])>>11) / (1 << 53) // from 0 to below sum
	for _, a := range answers {
		if at -= a.Share; at < 0 {
			return a
		}
	}
	return answers[len(answers)-1] // rounding, or no shares
}

// rememberedTries is how many messages' tries are counted at least.
const rememberedTries = 100_000

// tries counts the tries of each message, and forgets the oldest messages.
type tries struct {
	mu          sync.Mutex
	latest, old map[string]int
}

// add counts a try of the message and gives its number, from 1.
func (t *tries) add(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.latest) == rememberedTries || t.latest == nil {
		t.latest, t.old = map[string]int{}, t.latest
	}
	t.latest[id] = 1 + max(t.latest[id], t.old[id])
	return t.latest[id]
}
