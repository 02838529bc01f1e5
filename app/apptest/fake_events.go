package apptest

import (
	"context"
	"slices"
	"sync"

	"github.com/forgerun/forgerun/job"
)

// The part of fakeStore that watchers see. It keeps no events, only how many
// there are.

// record counts events of a row.
func (s *Store) record(r *Row, events int) {
	s.tx++
	r.EventSeq += events
	s.latest[r.ClientID] = job.Position{Tx: s.tx, ID: r.ID, Seq: r.EventSeq}
}

func (s *Store) Events(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	return call(ctx, s, "Events", func() (job.Log, error) {
		r, err := s.own(client, id)
		if err != nil {
			return job.Log{}, err
		}
		log := job.Log{Last: r.EventSeq, Ended: r.State.Final()}
		for seq := after + 1; seq <= r.EventSeq && len(log.Events) < limit; seq++ {
			log.Events = append(log.Events, job.Occurrence{Event: job.Event{JobID: id, Seq: seq}})
		}
		return log, nil
	})
}

func (s *Store) ClientEvents(ctx context.Context, client job.ID, after job.Position, limit int) (job.Feed, error) {
	return call(ctx, s, "ClientEvents", func() (job.Feed, error) {
		var feed job.Feed
		if latest := s.latest[client]; after.Before(latest) && limit > 0 {
			feed.Events = append(feed.Events, job.Occurrence{Position: latest})
		}
		return feed, nil
	})
}

func (s *Store) FeedEnd(ctx context.Context) (job.Position, error) {
	return call(ctx, s, "FeedEnd", func() (job.Position, error) { return job.Position{Tx: s.tx + 1}, nil })
}

func (s *Store) EventSeqs(ctx context.Context, jobs []job.ID) (map[job.ID]int, error) {
	return call(ctx, s, "EventSeqs", func() (map[job.ID]int, error) {
		s.Asked = append(s.Asked, slices.Clone(jobs))
		seqs := map[job.ID]int{}
		for _, id := range jobs {
			if r := s.Rows[id]; r != nil {
				seqs[id] = r.EventSeq
			}
		}
		return seqs, nil
	})
}

func (s *Store) LatestPositions(ctx context.Context, clients []job.ID) (map[job.ID]job.Position, error) {
	return call(ctx, s, "LatestPositions", func() (map[job.ID]job.Position, error) {
		s.Asked = append(s.Asked, slices.Clone(clients))
		latest := map[job.ID]job.Position{}
		for _, id := range clients {
			if p, ok := s.latest[id]; ok {
				latest[id] = p
			}
		}
		return latest, nil
	})
}

func (s *Store) Attempts(ctx context.Context, client, id job.ID) (job.Origin, []job.Attempt, error) {
	r, err := call(ctx, s, "Attempts", func() (*Row, error) { return s.own(client, id) })
	if err != nil {
		return job.Origin{}, nil, err
	}
	return r.Origin(), []job.Attempt{r.CurrentAttempt()}, nil
}

func (s *Store) Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error) {
	return call(ctx, s, "Result", func() (*job.StoredResult, error) {
		r, err := s.own(client, id)
		if err != nil {
			return nil, err
		}
		return &job.StoredResult{Result: *GoodResult(*r.Definition)}, nil
	})
}

func (s *Store) Jobs(ctx context.Context, client job.ID, _ job.Query) (job.Page, error) {
	return call(ctx, s, "Jobs", func() (page job.Page, err error) {
		for _, r := range s.Rows {
			if r.ClientID == client {
				page.Jobs = append(page.Jobs, &r.Job)
			}
		}
		return page, nil
	})
}

func (s *Store) CursorKey(ctx context.Context) ([]byte, error) {
	return call(ctx, s, "CursorKey", func() ([]byte, error) { return s.cursor, nil })
}

func (s *Store) Delete(ctx context.Context, client, id job.ID) error {
	_, err := call(ctx, s, "Delete", func() (struct{}, error) {
		r, err := s.own(client, id)
		switch {
		case err != nil:
			return struct{}{}, err
		case !r.State.Final():
			return struct{}{}, job.Errorf(job.CodeConflict, "The job is %s.", r.State)
		}
		delete(s.Rows, id)
		return struct{}{}, nil
	})
	return err
}

// fakeListener is the way that notifications come by.
type Listener struct {
	mu      sync.Mutex
	watched map[job.ID]bool
	Up      bool
	changes int
}

func (l *Listener) Watch(client job.ID) { l.set(client, true) }

func (l *Listener) Unwatch(client job.ID) { l.set(client, false) }

func (l *Listener) set(client job.ID, watched bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes++
	l.watched[client] = watched
}

func (l *Listener) Connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Up
}

func (l *Listener) SetConnected(connected bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Up = connected
}

// watching says whether a client is watched, and how often that changed.
func (l *Listener) Watching(client job.ID) (bool, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.watched[client], l.changes
}
