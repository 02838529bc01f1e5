package apptest

import (
	"context"

	"github.com/forgerun/forgerun/job"
)

// Record counts events of a row: the store keeps no events, only how many there are.
func (s *Store) Record(r *Row, events int) {
	s.tx++
	r.EventSeq += events
	s.latest[r.ClientID] = job.Position{Tx: s.tx, ID: r.ID, Seq: r.EventSeq}
}

func (s *Store) Events(ctx context.Context, client, id job.ID, after, limit int) (job.Log, error) {
	return Call(ctx, s, "Events", func() (job.Log, error) {
		r, err := s.Own(client, id)
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
	return Call(ctx, s, "ClientEvents", func() (job.Feed, error) {
		var feed job.Feed
		if latest := s.latest[client]; after.Before(latest) && limit > 0 {
			feed.Events = append(feed.Events, job.Occurrence{Position: latest})
		}
		return feed, nil
	})
}

func (s *Store) FeedEnd(ctx context.Context) (job.Position, error) {
	return Call(ctx, s, "FeedEnd", func() (job.Position, error) { return job.Position{Tx: s.tx + 1}, nil })
}

func (s *Store) EventSeqs(ctx context.Context, jobs []job.ID) (map[job.ID]int, error) {
	return Call(ctx, s, "EventSeqs", func() (map[job.ID]int, error) {
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
	return Call(ctx, s, "LatestPositions", func() (map[job.ID]job.Position, error) {
		latest := map[job.ID]job.Position{}
		for _, id := range clients {
			if p, ok := s.latest[id]; ok {
				latest[id] = p
			}
		}
		return latest, nil
	})
}
