package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// notice is what an event, on a stream or as a delivery, says of a job.
type notice struct {
	event, job string
	retryable  bool
}

// tell reads the data of an event. Its name may be written as on streams, job-failed, or as in deliveries, job.failed.
func tell(name string, data []byte) (notice, error) {
	var document struct {
		OutcomeOf string `json:"jobId"` // in the outcome document of an attempt
		EventOf   string `json:"job_id"`
		Retryable bool   `json:"retryable"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return notice{}, err
	}
	return notice{eventName(name), document.OutcomeOf + document.EventOf, document.Retryable}, nil
}

func eventName(name string) string { return strings.ReplaceAll(name, "-", ".") }

// ends are the states that events tell of; any other event is left alone.
var ends = map[string]string{
	"job.succeeded": "SUCCEEDED", "job.canceled": "CANCELED", "job.retries_exhausted": "FAILED", "job.failed": "FAILED",
}

// endOf is the state in which a job has ended if this was told of it. The service may try a job that has failed again.
func (t notice) endOf(in *intention) string {
	if t.event == "job.failed" && in.Retried && t.retryable {
		return ""
	}
	return ends[t.event]
}

// inbox keeps what was told, in its order: also what is told of a job before the answer to its submission has come.
type inbox struct {
	mu   sync.Mutex
	all  []notice
	news chan struct{} // has an entry if something has come since it was looked at last
}

func newInbox() *inbox { return &inbox{news: make(chan struct{}, 1)} }

func (b *inbox) add(t notice) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all = append(b.all, t)
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// take waits for something new, no longer than so long, and gives all of it.
func (b *inbox) take(ctx context.Context, atMost time.Duration) ([]notice, error) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		if all := b.takeAll(); len(all) > 0 {
			return all, nil
		}
		select {
		case <-b.news:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (b *inbox) takeAll() []notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all
	b.all = nil
	return all
}

// learnFromInbox takes in what is told until all jobs have ended.
func learnFromInbox(ctx context.Context, b *inbox, jobs []*intention) error {
	for len(open(jobs)) > 0 {
		all, err := b.take(ctx, time.Minute)
		if err != nil {
			return err
		}
		for _, t := range all {
			for _, in := range open(jobs) {
				if in.ID == t.job {
					in.Ended = t.endOf(in)
				}
			}
		}
	}
	return nil
}

// hintAndRead takes what a stream and a webhook tell as a hint, and reads the job then. Should no hint come it reads all the same.
func hintAndRead(ctx context.Context, a *api) ([]*intention, error) {
	hints := newInbox()
	stop, err := follow(ctx, a, hints)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stop() }()
	hook, err := register(ctx, a, hints, "binary")
	if err != nil {
		return nil, err
	}
	jobs := intentions(6)
	if err := a.submitAll(ctx, jobs); err != nil {
		return nil, err
	}
	for left := jobs; len(left) > 0; left = open(jobs) {
		all, err := hints.take(ctx, 15*time.Second)
		if err != nil {
			return nil, err
		}
		for _, in := range left {
			hinted := func(t notice) bool { return t.job == in.ID && t.endOf(&intention{}) != "" }
			if len(all) > 0 && !slices.ContainsFunc(all, hinted) {
				continue
			}
			if _, err := a.read(ctx, in, 0); err != nil {
				return nil, err
			}
		}
	}
	return jobs, hook.remove(ctx, a)
}
