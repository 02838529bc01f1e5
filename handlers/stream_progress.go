package handlers

import "github.com/forgerun/forgerun/job"

// shownProgress decides which progress a job's stream shows: only of the
// attempt that runs by the events told so far, never less than before, and
// always the last that is known.
type shownProgress struct {
	attempt int  // by the events told; 0 until that is known
	running bool // that attempt has started and not ended

	heard   *job.Notification // the furthest heard that is not shown; nil for none
	shown   *job.Progress     // of this attempt, nil for none
	pending bool              // the use case should be asked for what is known already
}

// hear takes news of progress.
func (s *shownProgress) hear(attempt int, p *job.Progress) {
	late := attempt < s.attempt || s.heard != nil && (attempt < s.heard.Attempt || attempt == s.heard.Attempt && !further(p, s.heard.Progress))
	if !late {
		s.heard = &job.Notification{Attempt: attempt, Progress: p}
	}
}

// due gives the progress to be shown now, nil for none. It counts as shown.
func (s *shownProgress) due() *job.Progress {
	if s.heard == nil || !s.running || s.heard.Attempt != s.attempt {
		return nil
	}
	p := s.heard.Progress
	s.heard = nil
	if s.shown != nil && !further(p, s.shown) {
		return nil
	}
	s.shown = p
	return p
}

// further reports whether p says more than q, and does not go back.
func further(p, q *job.Progress) bool {
	return p.Percentage > q.Percentage || p.Percentage == q.Percentage && p.UpdatedAt.After(q.UpdatedAt)
}

// ends reports whether an event ends the attempt that runs.
func (s *shownProgress) ends(o *job.Occurrence) bool {
	return s.running && o.Ended != nil && o.Attempt == s.attempt
}

// last gives the progress to be shown right before the event that ends the
// attempt. Where progress was shown, a success is the last step of it, whether
// or not that was heard.
func (s *shownProgress) last(o *job.Occurrence) *job.Progress {
	p := s.due()
	if o.Name != job.EventSucceeded || s.shown == nil || s.shown.Percentage >= 100 {
		return p
	}
	done := *s.shown
	done.Percentage, done.Phase, done.UpdatedAt = 100, "DONE", o.At
	done.StepsCompleted, done.ItemsProcessed = done.StepsTotal, done.ItemsTotal
	s.shown = &done
	return s.shown
}

// told takes note of an event that was told.
func (s *shownProgress) told(o *job.Occurrence) {
	if o.Next == "" {
		return // an annotation
	}
	if o.Attempt != s.attempt || o.Next == job.Running {
		s.shown = nil
	}
	s.attempt, s.running = o.Attempt, o.Next == job.Running
	s.pending = s.running
}

// know takes what the use case knows of the job, which must be as of the last
// event told.
func (s *shownProgress) know(j *job.Job) {
	s.pending = false
	s.attempt, s.running = j.Attempt, j.State == job.Running
	if j.Progress != nil && s.running {
		s.hear(j.Attempt, j.Progress)
	}
}
