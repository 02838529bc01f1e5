package notify

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

const (
	progressWait = 100 * time.Millisecond
	// progressRest is how long the progress of an ended attempt is kept. Readers that loaded the job just before the end can still read the
	// progress.
	progressRest = 10 * time.Second
)

func progressKey(id job.ID) string { return "forgerun:progress:" + id.String() }

// keepProgress adds to the pipeline the command that updates the progress in Redis. A key expires after progressTTL, which is longer than
// an attempt may run. Once the attempt has ended, the key expires after progressRest.
func (p *Publisher) keepProgress(ctx context.Context, pipe redis.Pipeliner, u *update, line []byte) {
	kept := p.progressTTL
	if u.ended {
		kept = progressRest
	}
	if u.Progress != nil {
		pipe.Set(ctx, progressKey(u.Job), line, kept)
	} else if u.ended {
		pipe.Expire(ctx, progressKey(u.Job), kept)
	}
}

// Progress reads the progress of a running job's attempt. It returns nil if the progress is unknown or Redis does not respond quickly.
// While the circuit breaker is open, Progress returns nil without asking Redis.
func (p *Publisher) Progress(ctx context.Context, id job.ID, attempt int) *job.Progress {
	if ctx.Err() != nil || !p.reading.Allow() {
		return nil
	}
	// WithoutCancel, because a caller that gives up must not count as a failure of Redis.
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), progressWait)
	defer cancel()
	value, err := p.redis.Client.Get(short, progressKey(id)).Bytes()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	err = p.redis.Failed("progress", err)
	var answer redis.Error
	if errors.As(err, &answer) { // Redis responded, so it is not down
		err = nil
	}
	p.reading.Report(err)
	var kept update
	if json.Unmarshal(value, &kept) != nil || kept.Attempt != attempt || kept.Progress == nil || !isPlausible(kept.Progress) {
		return nil
	}
	return kept.Progress
}
