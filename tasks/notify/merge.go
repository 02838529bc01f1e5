package notify

import (
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// merger merges notifications until they are sent: of each job the latest progress, and whether events were recorded before and
// after it. Whoever reports progress sees to it that it does not go backwards.
type merger struct {
	entries []entry
	index   map[subject]int // in entries
}

type subject struct{ client, job job.ID }

// entry is what is to be sent about one job.
type entry struct {
	subject
	before, after bool // events were recorded before, after the progress
	attempt       int
	progress      *job.Progress
	ended         bool // the attempt whose progress is, or was, kept in Redis
}

func newMerger() *merger { return &merger{index: map[subject]int{}} }

func (m *merger) add(n job.Notification) {
	e := m.entry(subject{n.ClientID, n.JobID})
	if n.Progress != nil && !n.JobID.IsZero() {
		if e.progress != nil && n.Attempt != e.attempt { // the events between them, too, come before it
			e.before, e.after = e.before || e.after, false
		}
		e.attempt, e.progress, e.ended = n.Attempt, n.Progress, false
	}
	if n.Progress == nil || n.Ended {
		e.before = e.before || e.progress == nil
		e.after = e.after || e.progress != nil
	}
	if n.Ended && (e.progress == nil || n.Attempt == e.attempt) {
		e.ended = true
	}
}

// entry gives the job's entry; the pointer is good until the next call.
func (m *merger) entry(s subject) *entry {
	i, ok := m.index[s]
	if !ok {
		i = len(m.entries)
		m.index[s] = i
		m.entries = append(m.entries, entry{subject: s})
	}
	return &m.entries[i]
}

// reset begins anew after a sending, or after one that failed.
func (m *merger) reset() {
	clear(m.index)
	clear(m.entries) // lets go of the progress
	m.entries = m.entries[:0]
}

// merged is what was merged, in the form in which it is sent.
type merged struct {
	kept     []keptProgress
	messages []message // each for the watchers of one client
}

// keptProgress is a change of the progress that Redis keeps for a job.
type keptProgress struct {
	job   job.ID
	value []byte // nil: only ended
	ended bool
}

type message struct {
	client job.ID
	text   []byte
}

// merged keeps the order in which jobs, and clients, were first added. A message ends with the entry that takes it over maxMessage.
func (m *merger) merged() merged {
	var all merged
	open := map[job.ID]int{}
	for i := range m.entries {
		e := &m.entries[i]
		var progress []byte
		if e.progress != nil {
			progress, _ = json.Marshal(e.progress) // nil for a time beyond the year 9999
		}
		if progress != nil || e.ended {
			all.kept = append(all.kept, keptProgress{e.job, keptValue(e.attempt, progress), e.ended})
		}
		if !e.before && !e.after && progress == nil {
			continue
		}
		at, ok := open[e.client]
		if !ok {
			at = len(all.messages)
			open[e.client] = at
			all.messages = append(all.messages, message{client: e.client})
		}
		text := all.messages[at].text
		if e.before {
			text = appendLine(text, e.job, 0, nil)
		}
		if progress != nil {
			text = appendLine(text, e.job, e.attempt, progress)
		}
		if e.after {
			text = appendLine(text, e.job, 0, nil)
		}
		all.messages[at].text = text
		if len(text) >= maxMessage {
			delete(open, e.client)
		}
	}
	return all
}
