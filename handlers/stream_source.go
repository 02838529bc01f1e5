package handlers

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/forgerun/forgerun/job"
)

// source gives events from a place in it, which moves on as they are read. It
// begins before the first event.
type source interface {
	// seek goes to the place of a cursor.
	seek(ctx context.Context, cursor string) error
	// resume goes to where the reader of a stream got the given id last, and
	// for "" to where a stream begins.
	resume(ctx context.Context, lastID string) error
	read(ctx context.Context, limit int) (part, error)
	// cursor names the place, for seek.
	cursor(ctx context.Context) (string, error)
	// idOf names an event, for resume.
	idOf(ctx context.Context, o *job.Occurrence) (string, error)
}

// part is what was read at once.
type part struct {
	events []job.Occurrence
	more   bool // there may be more already
	held   bool // there is more, but not yet to be read
	ended  bool // nothing comes after these events
}

// jobSource gives the events of one job. Their ids on a stream are the plain
// seq; the cursors of its lists are signed as all others.
type jobSource struct {
	server *Server
	client job.ID
	job    job.ID
	after  int // seq
}

func (j *jobSource) scope() string { return "job-events:" + j.job.String() }

// seqBytes is the length of a seq in a cursor.
const seqBytes = 4

func (j *jobSource) seek(ctx context.Context, cursor string) error {
	place, err := j.server.openCursor(ctx, j.client, j.scope(), cursor, seqBytes)
	if err != nil {
		return err
	}
	j.after = int(binary.BigEndian.Uint32(place))
	return nil
}

var errBadLastID = job.Errorf(job.CodeMalformed,
	"The Last-Event-ID is not the id of an event of this stream. Send the id of the last event received unchanged, or none to begin anew.")

func (j *jobSource) resume(_ context.Context, lastID string) error {
	if lastID == "" {
		return nil
	}
	seq, ok := parsePositive(lastID) // numbered alike, from 1
	if !ok {
		return errBadLastID
	}
	j.after = seq
	return nil
}

func (j *jobSource) read(ctx context.Context, limit int) (part, error) {
	log, err := j.server.deps.Events.JobEvents(ctx, j.client, j.job, j.after, limit)
	if err != nil {
		return part{}, err
	}
	if j.after > log.Last {
		return part{}, errBadLastID
	}
	if n := len(log.Events); n > 0 {
		j.after = log.Events[n-1].Seq
	}
	return part{events: log.Events, more: j.after < log.Last, ended: log.Ended}, nil
}

func (j *jobSource) cursor(ctx context.Context) (string, error) {
	place := binary.BigEndian.AppendUint32(nil, uint32(j.after))
	return j.server.sealCursor(ctx, j.client, j.scope(), place)
}

func (j *jobSource) idOf(_ context.Context, o *job.Occurrence) (string, error) {
	return strconv.Itoa(o.Seq), nil
}

// clientSource gives the events of all of a client's jobs and batches. Ids on
// its stream and cursors of its list are the same.
type clientSource struct {
	server *Server
	client job.ID
	after  job.Position
}

const clientScope = "events"

// positionBytes is the length of a position in a cursor: transaction, id, seq.
const positionBytes = 8 + len(job.ID{}) + seqBytes

func (c *clientSource) seek(ctx context.Context, cursor string) error {
	place, err := c.server.openCursor(ctx, c.client, clientScope, cursor, positionBytes)
	if err != nil {
		return err
	}
	c.after = positionOf(place)
	return nil
}

// positionOf reads what placeOf wrote.
func positionOf(place []byte) job.Position {
	return job.Position{
		Tx: binary.BigEndian.Uint64(place), ID: job.ID(place[8 : positionBytes-seqBytes]),
		Seq: int(binary.BigEndian.Uint32(place[positionBytes-seqBytes:])),
	}
}

// placeOf writes a position into a cursor.
func placeOf(p job.Position) []byte {
	place := binary.BigEndian.AppendUint64(make([]byte, 0, positionBytes), p.Tx)
	place = append(place, p.ID[:]...)
	return binary.BigEndian.AppendUint32(place, uint32(p.Seq))
}

func (c *clientSource) resume(ctx context.Context, lastID string) (err error) {
	if lastID == "" {
		c.after, err = c.server.deps.Events.FeedEnd(ctx)
		return err
	}
	if err = c.seek(ctx, lastID); job.CodeOf(err) == job.CodeMalformed {
		return errBadLastID
	}
	return err
}

func (c *clientSource) read(ctx context.Context, limit int) (part, error) {
	feed, err := c.server.deps.Events.ClientEvents(ctx, c.client, c.after, limit)
	if err != nil {
		return part{}, err
	}
	if n := len(feed.Events); n > 0 {
		c.after = feed.Events[n-1].Position
	}
	return part{events: feed.Events, more: feed.More, held: feed.Held}, nil
}

func (c *clientSource) cursor(ctx context.Context) (string, error) { return c.seal(ctx, c.after) }

func (c *clientSource) idOf(ctx context.Context, o *job.Occurrence) (string, error) {
	return c.seal(ctx, o.Position)
}

func (c *clientSource) seal(ctx context.Context, p job.Position) (string, error) {
	return c.server.sealCursor(ctx, c.client, clientScope, placeOf(p))
}
