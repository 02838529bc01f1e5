package stream

import (
	"github.com/forgerun/forgerun/job"
)

// progress decides which progress a job's stream shows: only of the attempt that
// runs by the events written so far, never less than before, and always the last
// that is known.
type progress struct {
	attempt int  // by the events written; 0 until that is known
	running bool // that attempt has started and not ended

	received *job.Notification // the furthest received that is not shown; nil for none
	shown    *job.Progress     // of this attempt, nil for none
	pending  bool              // the job should be read for what is known already
}

// receive takes the progress of a notification.
func (p *progress) receive(attempt int, now *job.Progress) {
	r := p.received
	late := attempt < p.attempt || r != nil && (attempt < r.Attempt || attempt == r.Attempt && !further(now, r.Progress))
	if !late {
		p.received = &job.Notification{Attempt: attempt, Progress: now}
	}
}

// due gives the progress to be shown now, nil for none. It counts as shown.
func (p *progress) due() *job.Progress {
	if p.received == nil || !p.running || p.received.Attempt != p.attempt {
		return nil
	}
	next := p.received.Progress
	p.received = nil
	if p.shown != nil && !further(next, p.shown) {
		return nil
	}
	p.shown = next
	return next
}

// further reports whether a says more than b, and does not go back.
func further(a, b *job.Progress) bool {
	return a.Percentage > b.Percentage || a.Percentage == b.Percentage && a.UpdatedAt.After(b.UpdatedAt)
}

// endsWith reports whether an event ends the attempt that runs.
func (p *progress) endsWith(o *job.Occurrence) bool {
	return p.running && o.Ended != nil && o.Attempt == p.attempt
}

// last gives the progress to be shown right before the event that ends the
// attempt. Where progress was shown, a success completes it, whether or not that
// was notified.
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
	p.attempt, p.running = o.Attempt, o.Next == job.Running
	p.pending = p.running
}

// read takes what is known of the job, as of the last event written.
func (p *progress) read(j *job.Job) {
	p.pending = false
	p.attempt, p.running = j.Attempt, j.State == job.Running
	if j.Progress != nil && p.running {
		p.receive(j.Attempt, j.Progress)
	}
}
