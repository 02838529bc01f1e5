package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"
)

// notice is the content of an event about a job, from a stream or a delivery.
type notice struct {
	event, job string
	retryable  bool
}

// tell parses an event. Streams name events like job-failed; deliveries like job.failed.
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

// ends maps event names to final states. Other events are ignored.
var ends = map[string]string{
	"job.succeeded": "SUCCEEDED", "job.canceled": "CANCELED", "job.retries_exhausted": "FAILED", "job.failed": "FAILED",
}

// endOf returns the final state of a job after this notice. A failed job may be retried by the service.
func (t notice) endOf(in *intention) string {
	if t.event == "job.failed" && in.Retried && t.retryable {
		return ""
	}
	return ends[t.event]
}

// inbox keeps notices in order, including those that arrive before the response to their job's submission.
type inbox struct {
	mu   sync.Mutex
	all  []notice
	news chan struct{} // has an entry if notices have arrived since the last take
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

// take waits for new notices, at most for atMost, and returns all of them.
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

// learnFromInbox reads notices until all jobs have ended.
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

// hintAndRead uses a stream and a webhook as hints: it reads a job after each notice, and after a while without one.
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
