package client

import (
	"context"
	"iter"
	"net/http"
)

// CreateSchedule creates a schedule. A request whose answer is lost is sent again with the
// same idempotency key, so that there is one.
func (c *Client) CreateSchedule(ctx context.Context, schedule ScheduleRequest, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, post(options, "schedules").with(schedule).keyed())
}

// Schedule reads a schedule.
func (c *Client) Schedule(ctx context.Context, id string, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, get(options, "schedules", id).of(id))
}

// Schedules lists the client's schedules, newest first.
func (c *Client) Schedules(ctx context.Context) iter.Seq2[Schedule, error] {
	return list[Schedule](ctx, c, get(nil, "schedules"), false)
}

// UpdateSchedule changes the members that the patch has (a JSON merge patch): nil removes
// one, such as "cron" when "interval" is given. The names are those of ScheduleRequest.
func (c *Client) UpdateSchedule(ctx context.Context, id string, patch map[string]any, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, newRequest(http.MethodPatch, options, []string{"schedules", id}).with(patch).of(id))
}

// DeleteSchedule removes a schedule; its jobs stay. A 404 to a repetition after a lost
// answer counts as deleted.
func (c *Client) DeleteSchedule(ctx context.Context, id string, options ...Option) error {
	return c.remove(ctx, options, "schedules", id)
}

// PauseSchedule has nothing be due any more. Safe to repeat.
func (c *Client) PauseSchedule(ctx context.Context, id string, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, post(options, "schedules", id, "pause").of(id))
}

// ResumeSchedule has a schedule be due again, from now on. Safe to repeat.
func (c *Client) ResumeSchedule(ctx context.Context, id string, options ...Option) (*Schedule, error) {
	return fetch[Schedule](ctx, c, post(options, "schedules", id, "resume").of(id))
}

// TriggerSchedule submits a job of a schedule now, beside its due times.
func (c *Client) TriggerSchedule(ctx context.Context, id string, options ...Option) (*Accepted, error) {
	return fetch[Accepted](ctx, c, post(options, "schedules", id, "trigger").keyed())
}
