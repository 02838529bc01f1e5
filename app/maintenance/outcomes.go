package maintenance

import (
	"context"
	"log/slog"
	"time"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

const streamLength = 1_000_000

const (
	publisherBatch = 500
	// Postgres keeps a published outcome for publishedKept, to publish it again if Redis loses its latest entries.
	publishedKept   = time.Minute
	removalInterval = 10 * time.Second
	// unknownEntry means that the last entry of the stream is unknown. It differs from every entry id.
	unknownEntry = "unknown"
)

// publisher appends the document of each ended attempt to a Redis stream, at least once (API contract, section 8). It marks an outcome as
// published after the append succeeded. A minute later, it deletes the outcome from Postgres, unless the stream has lost entries.
//
// The publisher compares the stream's last entry with the entry that it appended last. If the two differ, it appends all stored outcomes
// again. They differ if Redis lost data, or if another leader has appended entries.
type publisher struct {
	stream    string
	publicURL string
	store     *repo.Store
	queue     Queue
	metrics   *app.Metrics
	log       *slog.Logger

	// Only the leader's loop uses these fields.
	last     string
	appended []job.OutcomeMessage // outcomes that are in the stream, but not marked in storage yet
	removed  time.Time
}

func (m *Maintenance) newPublisher() *publisher {
	return &publisher{stream: m.OutcomeStream, publicURL: m.PublicURL, store: m.Store, queue: m.Tasks, metrics: m.Metrics, log: m.Log,
		last: unknownEntry}
}

func (p *publisher) round(ctx context.Context, leading func() bool) error {
	asked := time.Now()
	last, err := p.queue.LastOutcome(ctx, p.stream)
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

func (p *publisher) repair(ctx context.Context, last string) error {
	if last == p.last {
		return nil
	}
	p.appended = nil // the stream may have lost these outcomes
	n, err := p.store.RepublishOutcomes(ctx)
	if err != nil {
		return err
	}
	p.last = last
	if n > 0 {
		p.log.InfoContext(ctx, "recent outcomes may be missing in the outcome stream; they are appended again",
			"action", "republish_outcomes", "outcomes", n)
	}
	return nil
}

// remove deletes outcomes that were published at least publishedKept before `asked`. The round has checked the stream since `asked`, so
// the stream contains these outcomes.
func (p *publisher) remove(ctx context.Context, asked time.Time) error {
	if asked.Sub(p.removed) < removalInterval {
		return nil
	}
	if err := p.store.RemovePublished(ctx, publishedKept+time.Since(asked)); err != nil {
		return err
	}
	p.removed = asked
	return nil
}

func (p *publisher) publish(ctx context.Context, messages []job.OutcomeMessage) error {
	links := job.Links{PublicURL: p.publicURL, Absolute: true, Language: job.Languages[0]} // readers of the stream cannot negotiate a language
	entries := make([]job.StreamEntry, 0, len(messages))
	for _, m := range messages {
		document := links.Document(m.Origin, m.Ended)
		mediaType, body, err := document.Encode()
		if err != nil {
			p.log.ErrorContext(ctx, "cannot render an outcome; it is not published", "action", "publish_outcome",
				"job_id", m.JobID.String(), "attempt", m.Attempt, app.ErrorFields(err))
			continue
		}
		entries = append(entries, job.StreamEntry{Key: m.JobID.String(), ContentType: mediaType, Language: document.Language, Value: body})
	}
	if len(entries) > 0 {
		before, last, err := p.queue.AppendOutcomes(ctx, p.stream, streamLength, entries)
		if err != nil {
			return err
		}
		if before != p.last { // another process appended entries, or some were lost: the next round repairs the stream
			last = unknownEntry
		}
		p.last = last
	}
	p.metrics.OutcomesPublished.Add(float64(len(entries)))
	p.appended = messages
	return nil
}

// Each round calls mark before it publishes more outcomes. Otherwise every round would publish the same outcomes again while Postgres
// fails.
func (p *publisher) mark(ctx context.Context) error {
	if len(p.appended) == 0 {
		return nil
	}
	if err := p.store.MarkPublished(ctx, p.appended); err != nil {
		return err
	}
	p.appended = nil
	return nil
}
