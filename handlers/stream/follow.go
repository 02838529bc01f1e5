package stream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/forgerun/forgerun/job"
)

const (
	minHold  = 20 * time.Millisecond // minimum time between reads while an open transaction holds back events
	maxHold  = time.Second
	noteHold = time.Second // how long events are held back before the stream sends heldNote

	readPause     = 10 * time.Millisecond  // minimum time between two reads after a notification
	progressPause = 250 * time.Millisecond // minimum time between two reads after a notification with progress

	minRetry   = 100 * time.Millisecond // minimum pause between retries while storage fails
	maxRetry   = 5 * time.Second
	maxFailing = 30 * time.Second // the stream ends after storage has failed for this long
	noDeadline = 24 * time.Hour   // the wait for a notification is in practice unlimited
)

// ProgressEvent is the name of progress events.
const ProgressEvent = "job-progress"

// EventName returns the name of an event on a stream.
func EventName(event string) string { return eventNames.Replace(event) }

var eventNames = strings.NewReplacer(".", "-", "_", "-")

func (st *Stream) follow(ctx context.Context) error {
	notifications, stop := st.engine.Watch(st.Client, st.JobID)
	defer stop()
	p := st.First
	st.First = Page{}
	p.More = true // read again: events that were stored before Watch began caused no notification
	for hold := minHold; ; {
		received, err := st.writePage(ctx, p, notifications)
		if err != nil {
			return err
		}
		if p.Ended {
			return EndOfJob
		}
		withheld := p.Held && len(p.Events) == 0
		if !withheld {
			hold = minHold
		}
		if err = st.noteHeld(withheld); err != nil {
			return err
		}
		wait := noDeadline
		switch {
		case p.More || received:
			wait = 0
		case p.Held:
			wait, hold = hold, min(2*hold, maxHold)
		}
		p.Events = nil // free memory while waiting
		if wait > 0 {
			err = st.readProgress(ctx)
		}
		if err == nil {
			err = st.await(ctx, notifications, wait)
		}
		if err == nil {
			p, err = st.read(ctx)
		}
		if err != nil {
			return err
		}
	}
}

func (st *Stream) noteHeld(withheld bool) error {
	switch now := time.Now(); {
	case !withheld:
		st.noteAt = time.Time{}
	case st.noteAt.IsZero():
		st.noteAt = now.Add(noteHold)
	case !now.Before(st.noteAt):
		st.noteAt = now.Add(noDeadline)
		return st.out.write(heldNote)
	}
	return nil
}

// writePage writes events. Before the event that ends an attempt, it writes the attempt's final progress. It frees each event after writing
// it. `received` is true if writePage has read notifications, which may announce later events.
func (st *Stream) writePage(ctx context.Context, p Page, notifications <-chan job.Notification) (received bool, err error) {
	for i := range p.Events {
		if err := st.beatIfDue(ctx); err != nil {
			return false, err
		}
		o := &p.Events[i]
		if !st.JobID.IsZero() && st.progress.endsWith(o) {
			received = st.drain(notifications) || received
			if err := st.writeProgress(st.progress.last(o)); err != nil {
				return false, err
			}
		}
		id, err := st.EventID(ctx, o)
		if err != nil {
			return false, Storage // the reader will reconnect, and resume after the last event that it received
		}
		if err := st.out.frame(id, EventName(o.Name), st.engine.Render(o)); err != nil {
			return false, err
		}
		st.sent++
		st.engine.Metrics.Events.Inc()
		st.progress.written(o)
		p.Events[i] = job.Occurrence{}
	}
	return received, st.out.flush()
}

func (st *Stream) drain(notifications <-chan job.Notification) (received bool) {
	for {
		select {
		case n, ok := <-notifications:
			if !ok {
				return received
			}
			received = true
			st.progress.receive(n.Attempt, n.Progress)
		default:
			return received
		}
	}
}

func (st *Stream) writeProgress(p *job.Progress) error {
	if p == nil {
		return nil
	}
	return st.out.frame("", ProgressEvent, st.engine.RenderProgress(st.JobID, st.progress.attempt, p))
}

// readProgress reads and shows the stored progress after the start of the stream or of an attempt. If the read fails, later notifications
// bring newer progress.
func (st *Stream) readProgress(ctx context.Context) error {
	if st.JobID.IsZero() || !st.progress.pending {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, st.engine.RequestTimeout)
	defer cancel()
	if j := st.Job(ctx); j != nil {
		st.progress.read(j)
		if err := st.writeProgress(st.progress.due()); err != nil {
			return err
		}
	}
	return st.out.flush()
}

// await sends heartbeats and progress until a notification arrives, or the time `wait` has passed.
func (st *Stream) await(ctx context.Context, notifications <-chan job.Notification, wait time.Duration) error {
	due := time.Now().Add(wait)
	for {
		if err := st.beatIfDue(ctx); err != nil {
			return err
		}
		now := time.Now()
		if !now.Before(due) {
			return nil
		}
		st.timer.Reset(min(due.Sub(now), st.nextBeat.Sub(now)))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-st.timer.C:
		case <-st.keyChanged:
			st.nextBeat = time.Time{}
		case n, ok := <-notifications:
			if !ok {
				return Shutdown
			}
			pause, err := st.notified(n)
			if err != nil {
				return err
			}
			if soon := st.lastRead.Add(pause); soon.Before(due) {
				due = soon
			}
		}
	}
}

// notified shows the progress in a notification. `pause` is the minimum time between the last read of events and the next read.
func (st *Stream) notified(n job.Notification) (pause time.Duration, err error) {
	if st.JobID.IsZero() || n.Progress == nil {
		return readPause, nil
	}
	st.progress.receive(n.Attempt, n.Progress)
	p := st.progress.due()
	pause = progressPause
	if p == nil || n.Ended {
		pause = readPause
	}
	if err := st.writeProgress(p); err != nil {
		return 0, err
	}
	return pause, st.out.flush()
}

// beatIfDue writes a heartbeat if it is due or the key has changed. It returns an error if the stream's key is no longer valid. A heartbeat
// is written at once, before frames that are still in the buffer.
func (st *Stream) beatIfDue(ctx context.Context) error {
	now := time.Now()
	select {
	case <-st.keyChanged:
	default:
		if now.Before(st.nextBeat) {
			return nil
		}
	}
	if err := st.recheck(ctx); err != nil {
		return err
	}
	st.nextBeat = now.Add(st.engine.Heartbeat)
	return st.out.write(heartbeat)
}

func (st *Stream) recheck(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, st.engine.RequestTimeout)
	defer cancel()
	if err := st.engine.Recheck(ctx, st.Authorization, st.Client); err != nil {
		return fmt.Errorf("%w: %w", Unauthorized, err)
	}
	return nil
}

// While storage fails, read keeps the stream alive and retries.
func (st *Stream) read(ctx context.Context) (Page, error) {
	var failing time.Time
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		st.lastRead = time.Now()
		reading, cancel := context.WithTimeout(ctx, st.engine.RequestTimeout)
		p, err := st.Read(reading, PageSize)
		cancel()
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil:
			return Page{}, context.Cause(ctx)
		case job.CodeOf(err) == job.CodeKeyDisabled || job.CodeOf(err) == job.CodeTokenExpired:
			return Page{}, fmt.Errorf("%w: %w", Unauthorized, err)
		case job.CodeOf(err).Spec().Status < 500:
			return Page{}, EndOfJob // the job was deleted
		case failing.IsZero():
			failing = time.Now()
			st.log(ctx, slog.LevelWarn, "stream waits for storage", errorAttrs(job.CodeOf(err), err)...)
		case time.Since(failing) >= maxFailing:
			return Page{}, Storage
		}
		if err := st.await(ctx, nil, retry); err != nil {
			return Page{}, err
		}
	}
}
