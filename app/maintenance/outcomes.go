package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// OutboxStore keeps the outcomes that are to be published, and for a while those
// that were.
type OutboxStore interface {
	UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error)
	MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error
	RepublishOutcomes(ctx context.Context) (n int, err error)
	// RemovePublished removes outcomes that were published for longer than minAge.
	RemovePublished(ctx context.Context, minAge time.Duration) error
}

// OutcomeStream appends entries to a stream, in their order.
type OutcomeStream interface {
	// AppendOutcomes returns the ids of the entry before the new ones, "" for none, and of the last one.
	AppendOutcomes(ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry) (before, last string, err error)
	// LastOutcome returns the id of the stream's last entry, "" for none.
	LastOutcome(ctx context.Context, stream string) (last string, err error)
}

// streamLength is about how many entries the stream keeps.
const streamLength = 1_000_000

// PublisherConfig of a Publisher.
type PublisherConfig struct {
	Stream    string // name of the stream
	PublicURL string // base of problem types
}

const (
	publisherBatch = 500
	// publishedKept is how long an outcome that was published stays while the
	// stream's server lives: when it dies it may lose what it was given last.
	publishedKept   = time.Minute
	removalInterval = 10 * time.Second
	// unknownEntry is not the id of an entry.
	unknownEntry = "unknown"
)

// Publisher appends the outcome document of every attempt to a stream, at least
// once (section 8). An outcome is marked only after the stream has it, and stays in
// storage until the stream is seen to have it a minute later.
//
// The outcomes in storage are appended again when the stream ends with another entry than
// this process appended last: Redis was emptied, or has lost its latest writes, or
// another process led meanwhile, which may have died before it noticed.
type Publisher struct {
	cfg     PublisherConfig
	store   OutboxStore
	stream  OutcomeStream
	metrics *app.Metrics
	log     *slog.Logger

	// The leader's loop's own.
	last     string               // the id of the entry that the stream should end with
	appended []job.OutcomeMessage // the stream has them, and storage does not know
	removed  time.Time            // when those published for long were removed last
}

// NewPublisher makes a publisher; Maintenance runs it.
func NewPublisher(cfg PublisherConfig, store OutboxStore, stream OutcomeStream, m *app.Metrics, log *slog.Logger) *Publisher {
	return &Publisher{cfg: cfg, store: store, stream: stream, metrics: m, log: log, last: unknownEntry}
}

// round publishes what waits, the oldest first, for as long as this process
// leads.
func (p *Publisher) round(ctx context.Context, leading func() bool) error {
	asked := time.Now()
	last, err := p.stream.LastOutcome(ctx, p.cfg.Stream)
	if err != nil {
		return err
	}
	if err := p.repair(ctx, last); err != nil {
		return err
	}
	if err := p.remove(ctx, asked); err != nil {
		return err
	}
	for leading() {
		if err := p.mark(ctx); err != nil {
			return err
		}
		messages, err := p.store.UnpublishedOutcomes(ctx, publisherBatch)
		if err != nil || len(messages) == 0 {
			return err
		}
		if err := p.publish(ctx, messages); err != nil {
			return err
		}
		if len(messages) < publisherBatch {
			return p.mark(ctx)
		}
	}
	return nil
}

// repair has the recent outcomes published again if the stream ends with another entry.
func (p *Publisher) repair(ctx context.Context, last string) error {
	if last == p.last {
		return nil
	}
	p.appended = nil // the stream may have lost them
	n, err := p.store.RepublishOutcomes(ctx)
	if err != nil {
		return err
	}
	p.last = last
	if n > 0 {
		p.log.InfoContext(ctx, "recent outcomes are appended to the stream again", "action", "republish_outcomes", "outcomes", n)
	}
	return nil
}

// remove removes what was published a minute before the stream was seen to have it.
// While Redis is away everything stays, for repair.
func (p *Publisher) remove(ctx context.Context, asked time.Time) error {
	if asked.Sub(p.removed) < removalInterval {
		return nil
	}
	if err := p.store.RemovePublished(ctx, publishedKept+time.Since(asked)); err != nil {
		return err
	}
	p.removed = asked
	return nil
}

// publish appends outcomes. What cannot be rendered is left out for good: it must
// not stop the others.
func (p *Publisher) publish(ctx context.Context, messages []job.OutcomeMessage) error {
	links := job.Links{PublicURL: p.cfg.PublicURL, Absolute: true, Language: job.Languages[0]} // readers of the stream negotiate nothing
	entries := make([]job.StreamEntry, 0, len(messages))
	for _, m := range messages {
		document := links.Document(m.Origin, m.Ended)
		mediaType, body, err := document.Encode()
		if err != nil {
			p.log.ErrorContext(ctx, "an outcome is not published: it cannot be rendered", "action", "publish_outcome",
				"job_id", m.JobID.String(), "attempt", m.Attempt, app.ErrorFields(err))
			continue
		}
		entries = append(entries, job.StreamEntry{Key: m.JobID.String(), ContentType: mediaType, Language: document.Language, Value: body})
	}
	if err := p.append(ctx, entries); err != nil {
		return err
	}
	p.metrics.OutcomesPublished.Add(float64(len(entries)))
	p.appended = messages
	return nil
}

// append appends entries. If others than expected come before them, the next round repairs the stream.
func (p *Publisher) append(ctx context.Context, entries []job.StreamEntry) error {
	if len(entries) == 0 {
		return nil
	}
	before, last, err := p.stream.AppendOutcomes(ctx, p.cfg.Stream, streamLength, entries)
	if err != nil {
		return err
	}
	if before != p.last {
		last = unknownEntry
	}
	p.last = last
	return nil
}

// mark records what the stream has. Until that has worked nothing more
// is published, so trouble there does not fill the stream with repetitions.
func (p *Publisher) mark(ctx context.Context) error {
	if len(p.appended) == 0 {
		return nil
	}
	if err := p.store.MarkPublished(ctx, p.appended); err != nil {
		return err
	}
	p.appended = nil
	return nil
}
