package collect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
)

const (
	pageSize       = 100
	parallelLists  = 4
	parallelSample = 8
)

type sampledJob struct {
	account history.Account
	*client.Job
}

func (c *collector) lists(ctx context.Context) (sample []sampledJob, err error) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelLists)
	for _, a := range c.Accounts {
		group.Go(func() error {
			sent := time.Now().UTC()
			for j, err := range a.Client.Jobs(ctx, client.JobFilter{PageSize: pageSize, CreatedAfter: c.Since}) {
				if err != nil {
					return fmt.Errorf("list the jobs of tenant %d: %w", a.Tenant, err)
				}
				ticket, ours := judge.TicketOf(c.run.Run, j.CorrelationID)
				if !ours && a.ClientID == "" {
					continue // a job that the client submitted outside this run
				}
				c.add(history.Fact{Kind: history.ListedJob, Sent: sent, Tenant: a.Tenant, Ticket: ticket, Job: j.JobID, Shown: history.JobOf(j)})
				if ours && c.sampled(ticket) {
					mu.Lock()
					sample = append(sample, sampledJob{a, &j})
					mu.Unlock()
				}
			}
			return nil
		})
	}
	return sample, group.Wait()
}

// sampled reports whether the ticket is in a random sample of about SampleReports tickets.
func (c *collector) sampled(ticket int64) bool {
	return rand.New(rand.NewPCG(c.Seed, uint64(ticket))).Int64N(max(c.run.Tickets, 1)) < int64(c.SampleReports)
}

func (c *collector) reports(ctx context.Context, sample []sampledJob) error {
	if _, missing := c.found.Missing[judge.Lists]; missing && len(sample) == 0 {
		return errors.New("the jobs are unknown because the list could not be read")
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelSample)
	for _, s := range sample {
		group.Go(func() error {
			for attempt := 1; attempt < s.Attempt || attempt == s.Attempt && s.Final(); attempt++ {
				if err := c.report(ctx, s, attempt); err != nil {
					return err
				}
			}
			return c.deliveries(ctx, s)
		})
	}
	return group.Wait()
}

func (c *collector) deliveries(ctx context.Context, s sampledJob) error {
	for d, err := range s.account.Client.JobDeliveries(ctx, s.JobID, client.DeliveryFilter{PageSize: pageSize}) {
		if err == nil && c.DeliveryLogs {
			var read *client.Delivery
			if read, err = s.account.Client.JobDelivery(ctx, s.JobID, d.DeliveryID); err == nil {
				d = *read
			}
		}
		if err != nil {
			return fmt.Errorf("read the deliveries of job %s: %w", s.JobID, err)
		}
		kept := &history.Delivery{
			ID: d.DeliveryID, Webhook: d.WebhookID, URL: d.URL, EventID: d.EventID, EventName: d.EventName, Seq: d.Seq,
			State: d.State, Attempts: d.Attempts, Status: d.LastStatus, Next: d.NextAttemptAt,
			CreatedAt: d.CreatedAt, SettledAt: d.SettledAt, Log: d.AttemptsLog, HasLog: c.DeliveryLogs,
		}
		if d.LastError != nil {
			kept.Error = d.LastError.Code
		}
		c.add(history.Fact{Kind: history.APIDelivery, Tenant: s.account.Tenant, Job: s.JobID, Delivery: kept})
	}
	return nil
}

func (c *collector) report(ctx context.Context, s sampledJob, attempt int) error {
	f := history.Fact{Kind: history.APIReport, Tenant: s.account.Tenant, Job: s.JobID}
	r, err := s.account.Client.Report(ctx, s.JobID, attempt)
	if problem, ok := errors.AsType[*client.Problem](err); ok && problem.Status == http.StatusNotFound {
		f.Note = fmt.Sprintf("attempt %d: %d %s", attempt, problem.Status, problem.Code)
		c.add(f)
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the report of job %s: %w", s.JobID, err)
	}
	f.Report = &history.Report{
		Job: r.JobID, Attempt: r.Attempt, Outcome: r.Outcome, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, DurationMS: r.DurationMS,
	}
	if r.Failure != nil {
		f.Report.Failure = r.Failure.Code
	}
	for _, e := range r.Events {
		h, err := history.EventOf(&e)
		if h.Job = e.JobID; err != nil {
			h.Emitted = err.Error()
		}
		f.Report.Events = append(f.Report.Events, *h)
	}
	if s.State == client.Succeeded && attempt == s.Attempt {
		// A refused result or a wrong digest is recorded in the fact. A missing response is an error.
		result, err := s.account.Client.Result(ctx, s.JobID)
		problem, refused := errors.AsType[*client.Problem](err)
		unexpected, damaged := errors.AsType[*client.UnexpectedError](err)
		switch {
		case err == nil:
			f.Report.ResultSize = new(len(result.Data))
		case refused && problem.Status < 500 && problem.Status != http.StatusTooManyRequests:
			f.Report.ResultError = fmt.Sprintf("%d %s", problem.Status, problem.Code)
		case damaged && unexpected.Status < 400:
			f.Report.ResultError = err.Error()
		default:
			return fmt.Errorf("read the result of job %s: %w", s.JobID, err)
		}
	}
	c.add(f)
	return nil
}
