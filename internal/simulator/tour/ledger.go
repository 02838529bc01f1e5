package tour

import (
	"slices"
	"sync"

	"github.com/forgerun/forgerun/internal/simulator/history"
)

// ledger takes the facts of a tour and keeps them by kind.
type ledger struct {
	see func(kind, state string) // called with each state that a client saw

	mu       sync.Mutex
	kinds    map[int64]string // by ticket
	tickets  map[string]int64 // by job
	webhooks map[string]string
	states   map[string]string // of jobs, as last seen
	facts    map[string][]history.Fact
}

func newLedger() *ledger {
	return &ledger{
		kinds: map[int64]string{}, tickets: map[string]int64{}, webhooks: map[string]string{}, states: map[string]string{},
		facts: map[string][]history.Fact{},
	}
}

// expect notes of which kind tickets are.
func (l *ledger) expect(kind string, first int64, count int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range count {
		l.kinds[first+int64(n)] = kind
	}
}

// registered notes of which kind a webhook is.
func (l *ledger) registered(kind, webhook string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.webhooks[webhook] = kind
}

func (l *ledger) kindOf(ticket int64) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kinds[ticket]
}

// Add keeps a fact with those of its kind. What a webhook got of another kind's
// job is not kept.
func (l *ledger) Add(f history.Fact) {
	kind, state := l.add(f)
	if state != "" && l.see != nil {
		l.see(kind, state)
	}
}

func (l *ledger) add(f history.Fact) (kind, state string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Ticket == 0 {
		f.Ticket = l.tickets[f.Job]
	}
	if f.Kind == history.Submitted || f.Kind == history.ListedJob {
		l.tickets[f.Job] = f.Ticket
	}
	kind = l.kinds[f.Ticket]
	if d := f.Delivery; d != nil {
		owner := l.webhooks[d.Webhook]
		if kind == "" {
			kind = owner
		}
		if d.Webhook != "" && owner != kind {
			return "", ""
		}
	}
	l.facts[kind] = append(l.facts[kind], f)
	if state = stateIn(f); state != "" {
		l.states[f.Job] = state
	}
	return kind, state
}

// stateIn is the state that an answer has, "" for none.
func stateIn(f history.Fact) string {
	switch {
	case f.Kind == history.Looked && f.Told != nil:
		return f.Told.State
	case f.Kind == history.Acted:
		return f.Action.State
	}
	return ""
}

// of gives the facts of a kind so far.
func (l *ledger) of(kind string) []history.Fact {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.facts[kind])
}

// state is how a job was seen last.
func (l *ledger) state(job string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.states[job]
}
