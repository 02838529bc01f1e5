package judge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

const (
	listPage      = 100
	listsAtOnce   = 4
	reportsAtOnce = 8
)

// sampled is a job whose reports are to be read.
type sampled struct {
	account Account
	job     string
	ended   int  // attempts that have ended
	result  bool // the last one succeeded
	order   uint64
}

// lists reads each account's list of jobs, and draws the sample: the same of the
// same jobs and seed.
func (c *collector) lists(ctx context.Context) ([]sampled, error) {
	var mu sync.Mutex
	var sample []sampled
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(listsAtOnce)
	for _, a := range c.Accounts {
		group.Go(func() error {
			sent := time.Now().UTC()
			filter := client.JobFilter{PageSize: listPage, CreatedAfter: c.Since, WorkKind: c.WorkKind}
			for j, err := range a.Client.Jobs(ctx, filter) {
				if err != nil {
					return fmt.Errorf("jobs of tenant %d: %w", a.Tenant, err)
				}
				ticket, ours := ticketOf(c.Run, j.CorrelationID)
				if !ours && a.ClientID == "" {
					continue // of another time
				}
				c.add(history.Fact{Kind: history.ListedJob, Sent: sent, Tenant: a.Tenant, Ticket: ticket, Job: j.JobID, Told: listed(&j)})
				if n := done.Add(1); n%1000 == 0 {
					c.progress(string(Lists), n)
				}
				if c.SampleReports > 0 && ours {
					mu.Lock()
					sample = c.draw(append(sample, sampled{a, j.JobID, endedAttempts(&j), j.State == succeeded, c.orderOf(ticket)}), 2*c.SampleReports)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return c.draw(sample, c.SampleReports), err
}

// orderOf gives a ticket a place in the order of the seed.
func (c *collector) orderOf(ticket int64) uint64 { return rand.NewPCG(c.Seed, uint64(ticket)).Uint64() }

// draw keeps the sample that comes first in the order, when there are more than
// the given number.
func (c *collector) draw(all []sampled, most int) []sampled {
	if len(all) <= most {
		return all
	}
	slices.SortFunc(all, func(a, b sampled) int { return cmp.Compare(a.order, b.order) })
	return all[:min(len(all), c.SampleReports)]
}

func endedAttempts(j *client.Job) int {
	if final(j.State) {
		return j.Attempt
	}
	return j.Attempt - 1
}

// reports reads every report of the sample, its results and its deliveries.
func (c *collector) reports(ctx context.Context, sample []sampled) error {
	if _, missing := c.found.Missing[Lists]; missing && len(sample) == 0 {
		return errors.New("no job is known without its list")
	}
	var done atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reportsAtOnce)
	for _, s := range sample {
		group.Go(func() error {
			for attempt := 1; attempt <= s.ended; attempt++ {
				if err := c.report(ctx, s, attempt); err != nil {
					return err
				}
			}
			for d, err := range s.account.Client.JobDeliveries(ctx, s.job, client.DeliveryFilter{PageSize: listPage}) {
				if err != nil {
					return fmt.Errorf("deliveries of job %s: %w", s.job, err)
				}
				if c.DeliveryLogs {
					read, err := s.account.Client.JobDelivery(ctx, s.job, d.DeliveryID)
					if err != nil {
						return fmt.Errorf("delivery %s of job %s: %w", d.DeliveryID, s.job, err)
					}
					d = *read
				}
				c.add(toldDelivery(s, &d, c.DeliveryLogs))
			}
			c.progress(string(Reports), done.Add(1))
			return nil
		})
	}
	return group.Wait()
}

func (c *collector) report(ctx context.Context, s sampled, attempt int) error {
	f := history.Fact{Kind: history.ToldReport, Tenant: s.account.Tenant, Job: s.job}
	r, err := s.account.Client.Report(ctx, s.job, attempt)
	var problem *client.Problem
	switch {
	case errors.As(err, &problem) && problem.Status == 404:
		f.Note = fmt.Sprintf("attempt %d: %d %s", attempt, problem.Status, problem.Code)
	case err != nil:
		return fmt.Errorf("report of job %s: %w", s.job, err)
	default:
		f.Report = toldReport(r)
		if s.result && attempt == s.ended {
			if err := result(ctx, s, f.Report); err != nil {
				return err
			}
		}
	}
	c.add(f)
	return nil
}

// result reads what the job has produced. That it is refused, or that its bytes
// are not those of its digest, is a fact; that nobody answers is none.
func result(ctx context.Context, s sampled, into *history.Report) error {
	r, err := s.account.Client.Result(ctx, s.job)
	var problem *client.Problem
	var unexpected *client.UnexpectedError
	switch {
	case err == nil:
		size := len(r.Data)
		into.ResultSize = &size
	case errors.As(err, &problem) && problem.Status < 500 && problem.Status != 429:
		into.ResultError = fmt.Sprintf("%d %s", problem.Status, problem.Code)
	case errors.As(err, &unexpected) && unexpected.Status < 400:
		into.ResultError = err.Error()
	default:
		return fmt.Errorf("result of job %s: %w", s.job, err)
	}
	return nil
}

func listed(j *client.Job) *history.Job {
	return &history.Job{
		Type: j.Type, WorkKind: j.WorkKind, State: j.State, Outcome: j.Outcome, Attempt: j.Attempt, MaxAttempts: j.MaxAttempts,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt, ExecutionAt: known(j.ExecutionAt), StartedAt: known(j.StartedAt), FinishedAt: known(j.FinishedAt),
		Correlation: j.CorrelationID, Batch: j.BatchID,
	}
}

func toldReport(r *client.Report) *history.Report {
	told := &history.Report{Job: r.JobID, Attempt: r.Attempt, Outcome: r.Outcome, StartedAt: known(r.StartedAt), FinishedAt: r.FinishedAt, DurationMS: r.DurationMS}
	if r.Failure != nil {
		told.Failure = r.Failure.Code
	}
	for _, e := range r.Events {
		h := history.Event{
			ID: e.EventID, Seq: e.Seq, Name: e.Name, Prev: e.PrevState, Next: e.NextState, Attempt: e.Attempt, At: e.Timestamp,
			Emitted: emission(&e), Job: e.JobID,
		}
		readEventData(e.Data, &h)
		told.Events = append(told.Events, h)
	}
	return told
}

// emission is the client's own event in event.emitted: name and data.
func emission(e *client.Event) string {
	if e.Name != nameEmitted {
		return ""
	}
	var emitted struct {
		Name string          `json:"name"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(e.Data, &emitted); err != nil {
		return err.Error()
	}
	return emitted.Name + " " + string(emitted.Data)
}

func toldDelivery(s sampled, d *client.Delivery, hasLog bool) history.Fact {
	told := &history.Delivery{
		ID: d.DeliveryID, Webhook: d.WebhookID, URL: d.URL, EventID: d.EventID, EventName: d.EventName, Seq: d.Seq,
		State: d.State, Attempts: d.Attempts, Status: d.LastStatus, Next: d.NextAttemptAt,
		CreatedAt: d.CreatedAt, SettledAt: d.SettledAt, HasLog: hasLog,
	}
	for _, t := range d.AttemptsLog {
		took := time.Duration(t.DurationMS) * time.Millisecond
		told.Log = append(told.Log, history.LoggedTry{Number: t.Number, Status: t.Status, Took: took})
	}
	if d.LastError != nil {
		told.Error = d.LastError.Code
	}
	return history.Fact{Kind: history.ToldDelivery, Tenant: s.account.Tenant, Job: s.job, Delivery: told}
}
