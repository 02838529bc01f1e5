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
	// Epoch rises when the queue's server was emptied or replaced.
	Epoch(ctx context.Context) (epoch int64, redisRunID string, err error)
}

// OutcomeStream takes entries of a stream, in their order.
type OutcomeStream interface {
	AppendOutcomes(ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry) error
	// Epoch gives what the stream's server knows, as RelayQueue's does.
	Epoch(ctx context.Context) (epoch int64, runID string, err error)
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
)

// Publisher appends the outcome document of every attempt to a stream, at least
// once (section 8). An outcome is marked only after the stream has it. It stays
// until the stream's server is seen alive a minute later; what is still there is
// appended again when that server has been emptied or replaced, and when this
// process begins to lead: the leader before may have died over just that.
type Publisher struct {
	cfg     PublisherConfig
	store   OutboxStore
	stream  OutcomeStream
	metrics *app.Metrics
	log     *slog.Logger

	// The leader's loop's own.
	epoch    int64                // for which the stream was repaired
	appended []job.OutcomeMessage // the stream has them, and storage does not know
	removed  time.Time            // when those published for long were removed last
}

// NewPublisher makes a publisher; Maintenance runs it.
func NewPublisher(cfg PublisherConfig, store OutboxStore, stream OutcomeStream, m *app.Metrics, log *slog.Logger) *Publisher {
	return &Publisher{cfg: cfg, store: store, stream: stream, metrics: m, log: log}
}

// round publishes what waits, the oldest first, for as long as this process
// leads.
func (p *Publisher) round(ctx context.Context, leading func() bool) error {
	epoch, server, err := p.store.Epoch(ctx)
	if err != nil {
		return err
	}
	if err := p.repair(ctx, epoch); err != nil {
		return err
	}
	if err := p.remove(ctx, epoch, server); err != nil {
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

// repair has the recent outcomes published again in a new epoch.
func (p *Publisher) repair(ctx context.Context, epoch int64) error {
	if epoch == p.epoch {
		return nil
	}
	p.appended = nil // perhaps the stream does not have them any more
	n, err := p.store.RepublishOutcomes(ctx)
	if err != nil {
		return err
	}
	p.epoch = epoch
	if n > 0 {
		p.log.InfoContext(ctx, "recent outcomes are appended to the stream again", "action", "republish_outcomes", "outcomes", n, "epoch", epoch)
	}
	return nil
}

// remove removes what was published a minute before the stream's server was seen
// alive, and the same one. While it is away everything stays, for repair.
func (p *Publisher) remove(ctx context.Context, epoch int64, server string) error {
	if time.Since(p.removed) < removalInterval {
		return nil
	}
	asked := time.Now()
	sentinel, found, err := p.stream.Epoch(ctx)
	if err != nil || sentinel != epoch || found != server {
		return err
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
	if err := p.stream.AppendOutcomes(ctx, p.cfg.Stream, streamLength, entries); err != nil {
		return err
	}
	p.metrics.OutcomesPublished.Add(float64(len(entries)))
	p.appended = messages
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
