package handlers

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/job"
)

// The pace of a stream.
const (
	minHold = 20 * time.Millisecond // between looks for events that are held
	maxHold = time.Second

	// readPause is the least time between two reads that news ask for: a client
	// with very much going on does not become a client with as many queries.
	readPause = 10 * time.Millisecond
	// progressPause is the same for news of progress. They are a reason to read
	// only because news that were merged may stand for an event as well.
	progressPause = 250 * time.Millisecond

	minRetry    = 100 * time.Millisecond // between tries when storage fails
	maxRetry    = 5 * time.Second
	maxFailing  = 30 * time.Second // after which the stream ends
	untilNews   = 24 * time.Hour   // a wait that only news end
	progressMax = 5 * time.Second  // for asking the use case about progress
)

// follow writes events until there is a reason to end.
func (st *stream) follow(ctx context.Context) error {
	var id job.ID
	if st.job != nil {
		id = st.job.job
	}
	news, stop := st.server.deps.Events.Watch(st.client, id)
	defer stop()
	p := st.first
	st.first = part{}
	p.more = true // what happened since it was read may have been told before the watch began
	for hold := minHold; ; {
		heard, err := st.tell(ctx, p, news)
		if err != nil {
			return err
		}
		if p.ended {
			return endOfJob
		}
		wait := untilNews
		switch {
		case p.more || heard:
			wait = 0
		case p.held:
			wait, hold = hold, min(2*hold, maxHold)
		}
		if !p.held || len(p.events) > 0 {
			hold = minHold
		}
		p.events = nil // not kept while it waits
		if wait > 0 {
			err = st.askProgress(ctx)
		}
		if err == nil {
			err = st.await(ctx, news, wait)
		}
		if err == nil {
			p, err = st.read(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// tell writes events, and progress where an attempt ends. It lets go of each
// once it is written: a slow reader does not hold what it has taken. heard says
// that news were taken which may be of events after these.
func (st *stream) tell(ctx context.Context, p part, news <-chan job.Notification) (heard bool, err error) {
	for i := range p.events {
		o := &p.events[i]
		if st.job != nil && st.progress.ends(o) {
			heard = st.drain(news) || heard
			if err := st.writeProgress(st.progress.last(o)); err != nil {
				return false, err
			}
		}
		id, err := st.source.idOf(ctx, o)
		if err != nil {
			return false, endStorage // it has been so far: the reader resumes with the id it has
		}
		if err := st.out.frame(st.server.frameOf(id, o)); err != nil {
			return false, err
		}
		st.sent++
		st.server.streams.events.Inc()
		if st.job != nil {
			st.progress.told(o)
		}
		p.events[i] = job.Occurrence{}
		if err := st.beatIfDue(ctx); err != nil {
			return false, err
		}
	}
	return heard, st.out.flush()
}

// drain takes the news that have come already, for the progress among them.
func (st *stream) drain(news <-chan job.Notification) (heard bool) {
	for {
		select {
		case n, ok := <-news:
			if !ok {
				return heard
			}
			heard = true
			if n.Progress != nil {
				st.progress.hear(n.Attempt, n.Progress)
			}
		default:
			return heard
		}
	}
}

// writeProgress appends a frame of progress, if there is any.
func (st *stream) writeProgress(p *job.Progress) error {
	if p == nil {
		return nil
	}
	return st.out.frame(frame{event: progressEvent, data: progressFrame{st.job.job, st.progress.attempt, progressViewOf(p)}})
}

// askProgress shows what is known of an attempt that has just begun, or that
// ran before the stream did. What it cannot learn now, news will bring.
func (st *stream) askProgress(ctx context.Context) error {
	if st.job == nil || !st.progress.pending {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, progressMax)
	defer cancel()
	j, err := st.server.deps.Reader.Job(ctx, st.client, st.job.job)
	if err != nil || j.EventSeq != st.job.after {
		return nil //nolint:nilerr // events come first; a failing storage shows there
	}
	st.progress.know(j)
	if err := st.writeProgress(st.progress.due()); err != nil {
		return err
	}
	return st.out.flush()
}

// await returns when it is time to read again: when news came, or after the
// wait. Meanwhile it keeps the connection alive and shows progress.
func (st *stream) await(ctx context.Context, news <-chan job.Notification, wait time.Duration) error {
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
		case n, ok := <-news:
			if !ok {
				return endShutdown
			}
			pause, err := st.heed(n)
			if err != nil {
				return err
			}
			if soon := st.lastRead.Add(pause); soon.Before(due) {
				due = soon
			}
		}
	}
}

// heed shows the progress in news, and says how long after the last read the
// next one may come.
func (st *stream) heed(n job.Notification) (pause time.Duration, err error) {
	if st.job == nil || n.Progress == nil {
		return readPause, nil
	}
	st.progress.hear(n.Attempt, n.Progress)
	p := st.progress.due()
	pause = progressPause
	if p == nil || n.Ended {
		pause = readPause // it may belong to events that are not read yet
	}
	if err := st.writeProgress(p); err != nil {
		return 0, err
	}
	return pause, st.out.flush()
}

// beatIfDue shows now and then that the stream is alive, and ends it once the
// key with which it was opened is no longer good. What is gathered for the
// reader may come after the beat.
func (st *stream) beatIfDue(ctx context.Context) error {
	now := time.Now()
	if now.Before(st.nextBeat) {
		return nil
	}
	authCtx, cancel := context.WithTimeout(ctx, st.server.cfg.RequestTimeout)
	defer cancel()
	if err := st.server.stillGood(authCtx, st.authorization, st.client); err != nil {
		return fmt.Errorf("%w: %w", endUnauthorized, err)
	}
	st.nextBeat = now.Add(st.server.cfg.Heartbeat)
	return st.out.write(heartbeat)
}

// read reads what comes next. While storage fails, the stream stays alive: it
// goes on where it was.
func (st *stream) read(ctx context.Context) (part, error) {
	var failing time.Time
	for retry := minRetry; ; retry = min(2*retry, maxRetry) {
		p, err := st.readOnce(ctx)
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil:
			return part{}, context.Cause(ctx)
		case job.CodeOf(err).Spec().Status < 500:
			return part{}, endOfJob // the job was deleted
		case failing.IsZero():
			failing = time.Now()
			st.server.log.LogAttrs(ctx, slog.LevelWarn, "stream waits for storage", append(st.who(),
				slog.String("error_code", string(job.CodeOf(err))), slog.String("error_message", clip(err.Error())))...)
		case time.Since(failing) >= maxFailing:
			return part{}, endStorage
		}
		if err := st.await(ctx, nil, retry); err != nil {
			return part{}, err
		}
	}
}

func (st *stream) readOnce(ctx context.Context) (part, error) {
	ctx, cancel := context.WithTimeout(ctx, st.server.cfg.RequestTimeout)
	defer cancel()
	st.lastRead = time.Now()
	return st.source.read(ctx, pageSize)
}
