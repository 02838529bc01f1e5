package load

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/report"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

const (
	codeQueueFull  = "RFA_EXEC_QUEUE_FULL"
	codeInvalid    = "RFA_JOB_VALIDATION_FAILED"
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 2 * time.Second
	// atOnce limits how many copies of a submission are sent at the same time.
	atOnce = 64
)

// ticket is one planned submission, with all responses to its tries.
type ticket struct {
	number   int64
	tenant   int
	request  client.JobRequest
	intended time.Time
	hold     bool // the job must stay in Engine.jobs until follow returns

	mu   sync.Mutex // guards the fields below, because copies may be sent at the same time
	fact history.Submission
	job  string // id of the job; "" until a response contains it
}

// ticketsOf makes the tickets of an intent: one for each item of a batch. A single job has one ticket, and one more for each copy with its
// own idempotency key.
func (e *Engine) ticketsOf(in scenario.Intent, intended time.Time) []*ticket {
	list := make([]*ticket, in.Tickets)
	params := params(in.Work.ParamsBytes)
	digest := history.ParamsDigest(params)
	for i := range list {
		kind := in.Kind
		if len(in.Kinds) > 0 {
			kind = in.Kinds[i]
		}
		followed := in.Cancel.In != "" || in.Retries > 0 || in.Polled || e.awaitEnd
		t := &ticket{number: in.N + int64(i), tenant: in.Tenant, intended: intended, hold: followed}
		t.request = client.JobRequest{
			Type: in.Work.Type, WorkKind: kind, AutoRetry: in.Work.AutoRetry,
			CorrelationID: e.o.Run + "." + strconv.FormatInt(t.number, 10),
		}
		if params != nil {
			t.request.Params = params
		}
		if in.Work.Type == scenario.Deferred {
			t.request.ExecutionAt = e.serviceTime(intended).Add(in.Ahead).UTC().Truncate(time.Microsecond)
		}
		if in.Work.Type == scenario.EmitEvent {
			t.request.Event = &client.Emission{Name: "simulated", Data: []byte(strconv.FormatInt(t.number, 10))}
		}
		if in.Work.Callback != "" && e.o.Receiver != nil {
			t.request.Callback = e.o.Receiver.URL(in.Tenant, in.Work.Callback)
		}
		key := e.o.Run + "." + in.Key // the run's id makes the key unique, because runs with the same seed have the same in.Key
		if in.Work.Batch == 0 && i > 0 {
			key = e.o.Run + "." + in.CopyKey(i)
		}
		t.fact = history.Submission{
			Key: key, Type: in.Work.Type, WorkKind: kind,
			AutoRetry: in.Work.AutoRetry, Callback: t.request.Callback, Params: digest, ExecutionAt: t.request.ExecutionAt,
		}
		list[i] = t
	}
	return list
}

func (e *Engine) send(ctx context.Context, in scenario.Intent, intended time.Time) []*ticket {
	list := e.ticketsOf(in, intended)
	var group errgroup.Group
	group.SetLimit(map[bool]int{true: atOnce, false: 1}[in.AtOnce])
	for i := range 1 + in.Copies {
		group.Go(func() error {
			at := intended
			if i > 0 && !in.AtOnce {
				at = time.Now() // the copy is sent after the response to the previous copy
			}
			if in.Work.Batch > 0 {
				e.handInBatch(ctx, list, at)
			} else {
				e.submitTicket(ctx, list[min(i, len(list)-1)], at) // copies with the same key share a ticket
			}
			return nil
		})
	}
	_ = group.Wait() // the functions return no errors
	for _, t := range list {
		e.o.History.Add(history.Fact{
			At: time.Now().UTC(), Kind: history.Submitted, Tenant: t.tenant, Ticket: t.number, Job: t.job, Submission: &t.fact,
		})
	}
	return list
}

func (e *Engine) submitTicket(ctx context.Context, t *ticket, intended time.Time) {
	account := e.accounts[t.tenant]
	e.submitUntilKnown(ctx, intended, []*ticket{t}, func(ctx context.Context) (history.Answer, []history.Answer) {
		sent := time.Now()
		a, err := account.Quick.Submit(ctx, t.request, client.IdempotencyKey(t.fact.Key))
		try := answerOf(sent, err)
		if err == nil {
			try.Status, try.RequestID, try.Replayed, try.Location = a.Status, a.RequestID, a.Replayed, a.Location
			try.Job, try.State, try.CreatedAt = a.JobID, a.State, a.CreatedAt
		}
		e.note(t, try, "")
		return try, []history.Answer{try}
	})
}

func (e *Engine) handInBatch(ctx context.Context, list []*ticket, intended time.Time) {
	account := e.accounts[list[0].tenant]
	items := make([]client.JobRequest, len(list))
	for i, t := range list {
		items[i] = t.request
		items[i].ItemID = strconv.FormatInt(t.number, 10)
	}
	e.submitUntilKnown(ctx, intended, list, func(ctx context.Context) (history.Answer, []history.Answer) {
		sent := time.Now()
		a, err := account.Quick.SubmitBatch(ctx, items, client.IdempotencyKey(list[0].fact.Key))
		try := answerOf(sent, err)
		if err != nil {
			a = &client.BatchReceipt{}
		} else {
			try.Status, try.RequestID, try.Replayed = a.Status, a.RequestID, a.Replayed // the response has no created_at
		}
		each := make([]history.Answer, len(list))
		for i, t := range list {
			of := try
			if i < len(a.Jobs) {
				of.Job, of.State = a.Jobs[i].JobID, a.Jobs[i].State
				if f := a.Jobs[i].Failure; f != nil { // the item was refused
					of.Status, of.Code = f.Status, f.Code
				}
			}
			e.note(t, of, a.BatchID)
			each[i] = of
		}
		try.Job = a.BatchID
		return try, each
	})
}

// answerOf converts the error of a request that has just ended. Without an error, the status is 200.
func answerOf(sent time.Time, err error) history.Answer {
	a := history.Answer{Sent: sent.UTC(), Answered: time.Now().UTC()}
	problem, refused := errors.AsType[*client.Problem](err)
	unexpected, other := errors.AsType[*client.UnexpectedError](err)
	switch {
	case err == nil:
		a.Status = http.StatusOK
	case refused:
		a.Status, a.Code, a.RequestID = problem.Status, problem.Code, problem.RequestID
	case other:
		a.Status, a.Error = unexpected.Status, err.Error()
	default:
		a.Error = err.Error()
	}
	return a
}

// submitUntilKnown repeats a submission, with the same key, until it knows whether the job was created. A try without a response may have
// created the job. After such a try, a temporary refusal says nothing about the job, so the request is repeated. `send` returns the answer
// to the request, and one answer for each ticket.
func (e *Engine) submitUntilKnown(
	ctx context.Context, intended time.Time, list []*ticket, send func(context.Context) (history.Answer, []history.Answer),
) {
	e.o.Recorder.Sent(len(list))
	var try history.Answer
	var each []history.Answer
	unknown := false
	repeat(ctx, func() (done bool) {
		try, each = send(ctx)
		open := try.Unknown() && try.Code != codeQueueFull
		again := open || unknown && !try.Accepted() && mayPass(try.Status)
		unknown = unknown || open
		return !again
	})
	e.record(try.Answered.Sub(intended), list, each)
}

func (e *Engine) record(took time.Duration, list []*ticket, each []history.Answer) {
	classes := make([]string, len(each))
	for i, a := range each {
		classes[i] = e.class(list[i], a)
		switch {
		case a.Accepted():
		case a.Status == 0:
			e.o.Recorder.NotAccepted("no answer")
		default:
			e.o.Recorder.NotAccepted(strings.TrimSpace(strconv.Itoa(a.Status) + " " + a.Code))
		}
	}
	e.o.Recorder.Answered(took, classes...)
}

func repeat(ctx context.Context, fn func() (done bool)) {
	began := time.Now()
	for backoff := firstBackoff; !fn(); backoff = min(2*backoff, longestBackoff) {
		wait := time.Duration(rand.Int64N(int64(backoff)))
		if ctx.Err() != nil || time.Since(began)+wait > patience || Sleep(ctx, wait) != nil {
			return
		}
	}
}

func mayPass(status int) bool { return status == http.StatusTooManyRequests || status >= 500 }

func (e *Engine) class(t *ticket, a history.Answer) string {
	switch {
	case a.Accepted() && a.Replayed:
		return report.Replayed
	case a.Accepted():
		return report.Accepted
	case a.Status == 0:
		return report.Unanswered
	case a.Status == http.StatusTooManyRequests || a.Code == codeQueueFull:
		return report.Refused
	case a.Status >= 500:
		return report.Failed
	case a.Code == codeInvalid && e.mustRefuse(t, a):
		return report.Planned
	default:
		return report.Rejected
	}
}

// mustRefuse reports whether the service has a good reason to refuse the submission. Either the scenario uses the invalid work kind, or
// execution_at may have passed before the response.
func (e *Engine) mustRefuse(t *ticket, a history.Answer) bool {
	due := t.fact.ExecutionAt
	return t.fact.WorkKind == "PAYLOAD_INVALID" || !due.IsZero() && (len(e.ClockMoves()) > 0 || a.Answered.After(due))
}

// note records a try. If the job was accepted, note adds it to e.jobs.
func (e *Engine) note(t *ticket, try history.Answer, batch string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fact.Batch = cmp.Or(batch, t.fact.Batch)
	t.fact.Tries = append(t.fact.Tries, try)
	if !try.Accepted() || t.job != "" {
		return
	}
	t.job = try.Job
	if t.request.Callback != "" {
		e.addCallback(t)
	}
	e.jobs.accepted(try.Job, try.State, t.hold, func(j *job) {
		j.ticket, j.tenant, j.intended, j.autoRetry = t.number, t.tenant, t.intended, t.request.AutoRetry
		j.waits = t.request.ExecutionAt
	})
}

func params(bytes int) json.RawMessage {
	if bytes <= 0 {
		return nil
	}
	return json.RawMessage(`{"filler":"` + strings.Repeat("x", max(bytes-len(`{"filler":""}`), 0)) + `"}`)
}

// Sleep waits for d. If ctx ends first, it returns the cause. It returns at once if d is not positive.
func Sleep(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil || d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
