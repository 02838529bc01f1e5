package stream

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// progress decides which progress updates a job's stream shows. It shows only updates of the current attempt, which is the attempt of the
// latest written event. The shown progress of an attempt never decreases. The latest progress is shown before the event that ends the
// attempt.
type progress struct {
	attempt  int               // attempt of the latest written event; 0: unknown
	running  bool              // whether this attempt is running
	pending  bool              // the stored progress must still be read
	received *job.Notification // latest progress not yet shown; may be nil
	shown    *job.Progress     // progress of this attempt that was shown last; may be nil
}

// receive stores the progress in a notification, unless it is nil or outdated.
func (p *progress) receive(attempt int, now *job.Progress) {
	r := p.received
	late := attempt < p.attempt || r != nil && (attempt < r.Attempt || attempt == r.Attempt && !further(now, r.Progress))
	if now != nil && !late {
		p.received = &job.Notification{Attempt: attempt, Progress: now}
	}
}

// due returns the progress to show now, or nil, and marks it as shown.
func (p *progress) due() *job.Progress {
	if p.received == nil || !p.running || p.received.Attempt != p.attempt {
		return nil
	}
	next := p.received.Progress
	p.received = nil
	if !further(next, p.shown) {
		return nil
	}
	p.shown = next
	return next
}

func further(a, b *job.Progress) bool {
	return a != nil && (b == nil || a.Percentage > b.Percentage ||
		a.Percentage == b.Percentage && time.Time(a.UpdatedAt).After(time.Time(b.UpdatedAt)))
}

func (p *progress) endsWith(o *job.Occurrence) bool {
	return p.running && o.Ended != nil && o.Attempt == p.attempt
}

// last returns the progress to show before the event that ends the attempt. It returns 100 % if the attempt succeeded and its shown
// progress is lower.
func (p *progress) last(o *job.Occurrence) *job.Progress {
	due := p.due()
	if o.Name != job.EventSucceeded || p.shown == nil || p.shown.Percentage >= 100 {
		return due
	}
	done := *p.shown
	done.Percentage, done.Phase, done.UpdatedAt = 100, "DONE", job.Time(o.At)
	done.StepsCompleted, done.ItemsProcessed = done.StepsTotal, done.ItemsTotal
	p.shown = &done
	return p.shown
}

func (p *progress) written(o *job.Occurrence) {
	if o.Next == "" {
		return // the event does not change the state
	}
	if o.Attempt != p.attempt || o.Next == job.Running {
		p.shown = nil
	}
	p.attempt, p.running, p.pending = o.Attempt, o.Next == job.Running, o.Next == job.Running
}

// read sets the fields from the job `j`. The state of `j` must be the state after the latest event on the stream.
func (p *progress) read(j *job.Job) {
	p.attempt, p.running, p.pending = j.Attempt, j.State == job.Running, false
	if p.running {
		p.receive(j.Attempt, j.Progress)
	}
}
