package stream

import (
	"github.com/forgerun/forgerun/job"
)

// progress decides which progress a job's stream shows: only of the attempt that runs by the events written so far, never less than
// before, and always the last that is known.
type progress struct {
	attempt  int               // by the events written; 0 until that is known
	running  bool              // that attempt has started and not ended
	pending  bool              // the job should be read for what is known already
	received *job.Notification // the furthest received that is not shown; nil for none
	shown    *job.Progress     // of this attempt, nil for none
}

// receive takes the progress of a notification, if it has any.
func (p *progress) receive(attempt int, now *job.Progress) {
	r := p.received
	late := attempt < p.attempt || r != nil && (attempt < r.Attempt || attempt == r.Attempt && !further(now, r.Progress))
	if now != nil && !late {
		p.received = &job.Notification{Attempt: attempt, Progress: now}
	}
}

// due returns the progress to be shown now, nil for none. It counts as shown.
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

// further reports whether a says more than b, and does not go back.
func further(a, b *job.Progress) bool {
	return a != nil && (b == nil || a.Percentage > b.Percentage || a.Percentage == b.Percentage && a.UpdatedAt.After(b.UpdatedAt))
}

// endsWith reports whether an event ends the attempt that runs.
func (p *progress) endsWith(o *job.Occurrence) bool {
	return p.running && o.Ended != nil && o.Attempt == p.attempt
}

// last returns the progress to be shown right before the event that ends the attempt. Where progress was shown, a success completes it,
// whether or not that was notified.
func (p *progress) last(o *job.Occurrence) *job.Progress {
	due := p.due()
	if o.Name != job.EventSucceeded || p.shown == nil || p.shown.Percentage >= 100 {
		return due
	}
	done := *p.shown
	done.Percentage, done.Phase, done.UpdatedAt = 100, "DONE", o.At
	done.StepsCompleted, done.ItemsProcessed = done.StepsTotal, done.ItemsTotal
	p.shown = &done
	return p.shown
}

// written notes an event that was written.
func (p *progress) written(o *job.Occurrence) {
	if o.Next == "" {
		return // an annotation
	}
	if o.Attempt != p.attempt || o.Next == job.Running {
		p.shown = nil
	}
	p.attempt, p.running, p.pending = o.Attempt, o.Next == job.Running, o.Next == job.Running
}

// read takes what is known of the job, as of the last event written.
func (p *progress) read(j *job.Job) {
	p.attempt, p.running, p.pending = j.Attempt, j.State == job.Running, false
	if p.running {
		p.receive(j.Attempt, j.Progress)
	}
}
