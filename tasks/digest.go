package tasks

import (
	"encoding/json"

	"github.com/forgerun/forgerun/job"
)

// maxSteps is of how many running jobs a digest remembers the progress. It is
// far above what one process runs; jobs whose end found the buffer full add up.
const maxSteps = 100_000

// digest merges news until they are sent: of each job one progress, and before
// it and after it a word that events were recorded. Between sendings it
// remembers how far running jobs are, so that progress never goes backwards.
type digest struct {
	news     int // how many were added
	mentions []mention
	places   map[subject]int // in mentions
	steps    map[job.ID]step
}

type subject struct{ client, job job.ID }

// mention is what is to be told of one job.
type mention struct {
	subject
	before, after bool // events were recorded before, after the progress
	attempt       int
	progress      *job.Progress
	ended         bool // the attempt whose progress is, or was, kept in Redis
}

// step is the progress of a job that was last taken up.
type step struct {
	attempt, percentage int
	ended               bool
}

func newDigest() *digest {
	return &digest{places: map[subject]int{}, steps: map[job.ID]step{}}
}

func (d *digest) add(n job.Notification) {
	d.news++
	m := d.mention(subject{n.ClientID, n.JobID})
	if n.Progress != nil {
		d.addProgress(m, n)
	}
	if n.Progress == nil || n.Ended {
		m.before = m.before || m.progress == nil
		m.after = m.after || m.progress != nil
	}
	if n.Ended {
		d.end(m, n.Attempt)
	}
}

// mention gives the job's place; the pointer is good until the next call.
func (d *digest) mention(s subject) *mention {
	i, ok := d.places[s]
	if !ok {
		i = len(d.mentions)
		d.places[s] = i
		d.mentions = append(d.mentions, mention{subject: s})
	}
	return &d.mentions[i]
}

// addProgress takes up what is news: not of an attempt that has ended or was
// followed by another, and not less than what is known.
func (d *digest) addProgress(m *mention, n job.Notification) {
	last := d.steps[n.JobID]
	old := n.Attempt < last.attempt ||
		n.Attempt == last.attempt && (last.ended || n.Progress.Percentage < last.percentage)
	if old || n.JobID.IsZero() {
		return
	}
	d.steps[n.JobID] = step{attempt: n.Attempt, percentage: n.Progress.Percentage}
	if m.progress != nil && n.Attempt != m.attempt { // the events between them, too, come before it
		m.before, m.after = m.before || m.after, false
	}
	m.attempt, m.progress, m.ended = n.Attempt, n.Progress, false
}

// end notes that the attempt is over, if this process sent its progress.
func (d *digest) end(m *mention, attempt int) {
	last, known := d.steps[m.job]
	if known && attempt == last.attempt {
		last.ended, m.ended = true, true
		d.steps[m.job] = last
	}
}

// reset begins anew after a sending, or after one that failed.
func (d *digest) reset() {
	for i := range d.mentions {
		if d.mentions[i].ended {
			delete(d.steps, d.mentions[i].job)
		}
	}
	if len(d.steps) > maxSteps {
		clear(d.steps)
	}
	clear(d.places)
	clear(d.mentions) // lets go of the progress
	d.news, d.mentions = 0, d.mentions[:0]
}

// report is a digest in the form in which it is sent.
type report struct {
	kept     []keptProgress
	messages []message
}

// keptProgress is a change of the progress that Redis keeps for a job.
type keptProgress struct {
	job   job.ID
	value []byte // nil: only ended
	ended bool
}

// message is a piece of news for one client.
type message struct {
	client job.ID
	text   []byte
}

// report keeps the order in which jobs, and clients, were first mentioned. A
// message ends with the mention with which it outgrows maxMessage bytes.
func (d *digest) report() report {
	var r report
	open := map[job.ID]int{}
	for i := range d.mentions {
		m := &d.mentions[i]
		progress := m.encode()
		if progress != nil || m.ended {
			r.kept = append(r.kept, keptProgress{m.job, keptValue(m.attempt, progress), m.ended})
		}
		if !m.before && !m.after && progress == nil {
			continue
		}
		at, ok := open[m.client]
		if !ok {
			at = len(r.messages)
			open[m.client] = at
			r.messages = append(r.messages, message{client: m.client})
		}
		text := m.appendTo(r.messages[at].text, progress)
		r.messages[at].text = text
		if len(text) >= maxMessage {
			delete(open, m.client)
		}
	}
	return r
}

// encode gives the progress as JSON, nil for none.
func (m *mention) encode() []byte {
	if m.progress == nil {
		return nil
	}
	text, err := json.Marshal(m.progress)
	if err != nil { // a time beyond the year 9999
		return nil
	}
	return text
}

func (m *mention) appendTo(text, progress []byte) []byte {
	if m.before {
		text = appendEvent(text, m.job)
	}
	if progress != nil {
		text = appendProgress(text, m.job, m.attempt, progress)
	}
	if m.after {
		text = appendEvent(text, m.job)
	}
	return text
}
