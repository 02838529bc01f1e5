package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/job"
)

const (
	// progressWait bounds how long a reader waits for progress.
	progressWait = 100 * time.Millisecond
	// progressRest is how long the progress of an ended attempt is kept, for readers that have seen the job running.
	progressRest = 10 * time.Second
)

func progressKey(id job.ID) string { return "forgerun:progress:" + id.String() }

// keptValue is what Redis keeps, nil when there is no progress.
func keptValue(attempt int, progress []byte) []byte {
	if progress == nil {
		return nil
	}
	return fmt.Appendf(nil, `{"attempt":%d,"progress":%s}`, attempt, progress)
}

// keepProgress adds the command that changes what Redis keeps. Each key expires, at the latest when no attempt can still run.
func (p *Publisher) keepProgress(ctx context.Context, pipe redis.Pipeliner, k keptProgress) {
	key, kept := progressKey(k.job), p.progressTTL
	if k.ended {
		kept = progressRest
	}
	if k.value == nil {
		pipe.Expire(ctx, key, kept)
	} else {
		pipe.Set(ctx, key, k.value, kept)
	}
}

// Progress reads how far the attempt of a running job has come: nil when that is not known, or Redis does not answer at once.
// While Redis is known to be down it does not try.
func (p *Publisher) Progress(ctx context.Context, id job.ID, attempt int) *job.Progress {
	if ctx.Err() != nil || !p.reading.Allow() {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, progressWait)
	defer cancel()
	value, err := p.redis.Client.Get(short, progressKey(id)).Bytes()
	var answer redis.Error
	switch {
	case err == nil || errors.Is(err, redis.Nil):
		p.reading.Report(nil)
	case isOver(ctx): // says nothing about Redis
		p.reading.Abandon()
	case errors.As(err, &answer): // a refusal is quick
		_ = p.redis.Failed("progress", err)
		p.reading.Report(nil)
	default:
		p.reading.Report(p.redis.Failed("progress", err))
	}
	if err != nil {
		return nil
	}
	return readKept(value, attempt)
}

// isOver is true from the deadline on: a connection may notice it before ctx.
func isOver(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}

// readKept gives nil for another attempt and for what this package did not write.
func readKept(value []byte, attempt int) *job.Progress {
	var kept struct {
		Attempt  int             `json:"attempt"`
		Progress json.RawMessage `json:"progress"`
	}
	if json.Unmarshal(value, &kept) != nil || kept.Attempt != attempt {
		return nil
	}
	return parseProgress(kept.Progress)
}
