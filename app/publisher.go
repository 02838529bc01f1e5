package app

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"

	"github.com/forgerun/forgerun/job"
)

// OutboxStore keeps the outcomes that are to be published, and for a minute
// those that were.
type OutboxStore interface {
	UnpublishedOutcomes(ctx context.Context, limit int) ([]job.OutcomeMessage, error)
	MarkPublished(ctx context.Context, messages []job.OutcomeMessage) error
	RepublishOutcomes(ctx context.Context) (n int, err error)
	// Epoch rises when the queue's server was emptied or replaced.
	Epoch(ctx context.Context) (epoch int64, redisRunID string, err error)
}

// OutcomeStream takes entries of a stream, in their order.
type OutcomeStream interface {
	AppendOutcomes(ctx context.Context, stream string, maxLen int64, entries []job.StreamEntry) error
}

// PublisherConfig of a Publisher.
type PublisherConfig struct {
	Stream    string // name of the stream
	MaxLen    int64  // about how many entries it keeps
	PublicURL string // base of problem types
}

const publisherBatch = 500

// Content types of outcome documents.
const (
	typeProblem = "application/problem+json"
	typeJSON    = "application/json"
)

// Publisher appends the outcome document of every attempt to a stream, at least
// once (section 8). An outcome is marked only after the stream has it. Those of
// the last minute are appended again when the stream's server has been emptied
// or replaced since, and when this process begins to lead: the leader before
// may have died over just that.
type Publisher struct {
	cfg     PublisherConfig
	store   OutboxStore
	stream  OutcomeStream
	metrics *Metrics
	log     *slog.Logger

	// The leader's loop's own.
	epoch    int64                // for which the stream was repaired
	appended []job.OutcomeMessage // the stream has them, and storage does not know
}

// NewPublisher makes a publisher; Maintenance runs it.
func NewPublisher(cfg PublisherConfig, store OutboxStore, stream OutcomeStream, m *Metrics, log *slog.Logger) *Publisher {
	return &Publisher{cfg: cfg, store: store, stream: stream, metrics: m, log: log}
}

// round publishes what waits, the oldest first, for as long as this process
// leads.
func (p *Publisher) round(ctx context.Context, leading func() bool) error {
	if err := p.repair(ctx); err != nil {
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
func (p *Publisher) repair(ctx context.Context) error {
	epoch, _, err := p.store.Epoch(ctx)
	if err != nil || epoch == p.epoch {
		return err
	}
	p.appended = nil // perhaps the stream does not have them any more
	n, err := p.store.RepublishOutcomes(ctx)
	if err != nil {
		return err
	}
	p.epoch = epoch
	if n > 0 {
		p.log.Info("recent outcomes are appended to the stream again", "action", "republish_outcomes", "outcomes", n, "epoch", epoch)
	}
	return nil
}

func (p *Publisher) publish(ctx context.Context, messages []job.OutcomeMessage) error {
	entries := make([]job.StreamEntry, len(messages))
	for i, m := range messages {
		entry, err := p.entry(m)
		if err != nil {
			return err
		}
		entries[i] = entry
	}
	if err := p.stream.AppendOutcomes(ctx, p.cfg.Stream, p.cfg.MaxLen, entries); err != nil {
		return err
	}
	p.metrics.outcomesPublished.Add(float64(len(entries)))
	p.appended = messages
	return nil
}

// mark tells storage what the stream has. Until that has worked nothing more
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

// entry renders an outcome as the API would.
func (p *Publisher) entry(m job.OutcomeMessage) (job.StreamEntry, error) {
	document := job.Links{PublicURL: p.cfg.PublicURL}.Document(m.Origin, m.Ended)
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return job.StreamEntry{}, err
	}
	entry := job.StreamEntry{Key: m.JobID.String(), ContentType: typeJSON, Value: bytes.TrimSuffix(body.Bytes(), []byte("\n"))}
	if document.IsProblem() {
		entry.ContentType = typeProblem
	}
	return entry, nil
}
