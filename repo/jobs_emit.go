package repo

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	emitEvent       = statement("emitEvent")
	emitEventInTime = statement("emitEvent", "{{moment}}", emitMoment)
)

// Emit adds event.emitted to the log of a running job. before is how many events
// the attempt has emitted: an event whose answer was lost is not added again.
// job.ErrStale: the claim is no longer current and nothing was written.
func (s *Store) Emit(ctx context.Context, l job.Lease, before int, e job.Emission) error {
	data, err := json.Marshal(emission{e.Name, e.Data})
	if err != nil {
		return err
	}
	id, text := eventIDs(1)[0], emitEvent
	if s.cfg.Clock != nil {
		text = emitEventInTime
	}
	for {
		rows, err := queryRowsAs(ctx, s, "emit", pgx.RowTo[*bool], text, uuid(l.JobID), l.Attempt, l.Fence, before, id, data, e.At)
		switch {
		case err != nil:
			return err
		case len(rows) == 0:
			return job.ErrStale
		case rows[0] != nil:
			return nil
		}
	}
}
