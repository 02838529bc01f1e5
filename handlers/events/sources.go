package events

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/handlers/stream"
	"github.com/forgerun/forgerun/job"
)

// source reads events after a position. The position begins before the first event, and advances with each read.
type source interface {
	stream.Source
	seek(ctx context.Context, cursor string) error
	// resume moves to the position after the event lastID. Without lastID, a job's stream starts at its first event, and a client's stream
	// with new events.
	resume(ctx context.Context, lastID string) error
	cursor(ctx context.Context) (string, error)
}

// In a job's stream, the seq of an event is its id. The job's event list uses signed cursors instead.
type jobSource struct {
	api    *API
	client job.ID
	job    job.ID
	after  int // seq
}

func (j *jobSource) scope() string { return "job-events:" + j.job.String() }

func (j *jobSource) seek(ctx context.Context, cursor string) error {
	position, err := j.api.CursorKey.Open(ctx, j.client, j.scope(), cursor, query.SeqBytes)
	if err != nil {
		return err
	}
	j.after = int(binary.BigEndian.Uint32(position))
	return nil
}

var errBadLastID = job.Errorf(job.CodeMalformed,
	"The Last-Event-ID is not the id of an event of this stream. Send the id of the last event unchanged, or no id to start "+
		"from the beginning.")

func (j *jobSource) resume(_ context.Context, lastID string) error {
	if lastID == "" {
		return nil
	}
	seq, ok := query.Positive(lastID) // seqs start at 1
	if !ok {
		return errBadLastID
	}
	j.after = seq
	return nil
}

func (j *jobSource) Read(ctx context.Context, limit int) (stream.Page, error) {
	log, err := j.api.Events.JobEvents(ctx, j.client, j.job, j.after, limit)
	if err != nil {
		return stream.Page{}, err
	}
	if j.after > log.Last {
		return stream.Page{}, errBadLastID
	}
	if n := len(log.Events); n > 0 {
		j.after = log.Events[n-1].Seq
	}
	return stream.Page{Events: log.Events, More: j.after < log.Last, Ended: log.Ended}, nil
}

func (j *jobSource) cursor(ctx context.Context) (string, error) {
	return j.api.CursorKey.Seal(ctx, j.client, j.scope(), binary.BigEndian.AppendUint32(nil, uint32(j.after)))
}

func (j *jobSource) EventID(_ context.Context, o *job.Occurrence) (string, error) {
	return strconv.Itoa(o.Seq), nil
}

// current returns the job, or nil if the job has changed since the last event that was read.
func (j *jobSource) current(ctx context.Context) *job.Job {
	now, err := j.api.Jobs.Job(ctx, j.client, j.job)
	if err != nil || now.EventSeq != j.after {
		return nil
	}
	return now
}

// In a client's stream, the id of an event is also a cursor of the event list.
type clientSource struct {
	api    *API
	client job.ID
	after  job.Position
}

const clientScope = "events"

func (c *clientSource) seek(ctx context.Context, cursor string) error {
	position, err := c.api.CursorKey.Open(ctx, c.client, clientScope, cursor, query.PositionBytes)
	if err != nil {
		return err
	}
	c.after = query.PositionOf(position)
	return nil
}

func (c *clientSource) resume(ctx context.Context, lastID string) (err error) {
	if lastID == "" {
		c.after, err = c.api.Jobs.FeedEnd(ctx)
		return err
	}
	if err = c.seek(ctx, lastID); job.CodeOf(err) == job.CodeMalformed {
		return errBadLastID
	}
	return err
}

func (c *clientSource) Read(ctx context.Context, limit int) (stream.Page, error) {
	feed, err := c.api.Events.ClientEvents(ctx, c.client, c.after, limit)
	if err != nil {
		return stream.Page{}, err
	}
	if n := len(feed.Events); n > 0 {
		c.after = feed.Events[n-1].Position
	}
	return stream.Page{Events: feed.Events, More: feed.More, Held: feed.Held}, nil
}

func (c *clientSource) cursor(ctx context.Context) (string, error) { return c.seal(ctx, c.after) }

func (c *clientSource) EventID(ctx context.Context, o *job.Occurrence) (string, error) {
	return c.seal(ctx, o.Position)
}

func (c *clientSource) seal(ctx context.Context, p job.Position) (string, error) {
	return c.api.CursorKey.Seal(ctx, c.client, clientScope, query.Bytes(p))
}
