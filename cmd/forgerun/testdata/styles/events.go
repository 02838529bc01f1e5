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

// parseNotice parses an event. Streams use names like job-failed, deliveries use job.failed.
func parseNotice(name string, data []byte) (notice, error) {
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

// ends maps event names to final states. The client ignores other events.
var ends = map[string]string{
	"job.succeeded": "SUCCEEDED", "job.canceled": "CANCELED", "job.retries_exhausted": "FAILED", "job.failed": "FAILED",
}

// endOf returns the final state of a job after this notice. It returns "" if the job has not ended or the service retries it.
func (t notice) endOf(in *intention) string {
	if t.event == "job.failed" && in.Retried && t.retryable {
		return ""
	}
	return ends[t.event]
}

// inbox keeps notices in order. Some arrive before the response to the submission of their job.
type inbox struct {
	mu   sync.Mutex
	all  []notice
	news chan struct{} // has an element if notices have arrived since the last take
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

// take waits until there are notices, at most for atMost, and returns all of them.
func (b *inbox) take(ctx context.Context, atMost time.Duration) ([]notice, error) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		if all := b.drain(); len(all) > 0 {
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

func (b *inbox) drain() []notice {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.all
	b.all = nil
	return all
}

// updateFromInbox takes notices until all jobs have ended.
func updateFromInbox(ctx context.Context, b *inbox, jobs []*intention) error {
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

// hintAndRead uses a stream and a webhook as hints. It reads a job after each notice about its end, and all open jobs after 15 s without a
// notice.
func hintAndRead(ctx context.Context, a *api) ([]*intention, error) {
	hints := newInbox()
	s, err := follow(ctx, a, "/v1/events", hints)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.stop() }()
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
