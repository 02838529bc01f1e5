package tour

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
	"github.com/forgerun/forgerun/internal/simulator/judge"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/load"
	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

// kindPlay is the playing of one kind. It belongs to one goroutine.
type kindPlay struct {
	*tour
	Row
	intent  scenario.Intent
	webhook *client.Webhook // nil: the kind has none
	outage  *OutageTimes
}

func (k *kindPlay) story() story { return storyOf(k.facts.of(k.Kind)) }

func (k *kindPlay) stopsService() bool {
	return k.Kind == "SCHEDULED_LATE_RECOVERY" && k.o.Outage != nil
}

// differs notes one difference between what was expected and what came. The same
// one may be found in several places; it is noted once.
func (k *kindPlay) differs(format string, args ...any) {
	if d := fmt.Sprintf(format, args...); !slices.Contains(k.Findings, d) {
		k.Findings = append(k.Findings, d)
	}
}

// play plays the client's part, looks at what came of it, and leaves nothing behind.
func (k *kindPlay) play(ctx context.Context) {
	err := k.act(ctx)
	cause := context.Cause(ctx)
	if errors.Is(err, errUnreachable) {
		k.Err, k.Notes = err, append(k.Notes, err.Error())
	} else if err != nil && cause == nil {
		k.differs("%v", err)
	}
	k.ended(cause)
	if k.Err == nil || errors.Is(k.Err, errUnreachable) {
		k.judge(ctx, cause != nil)
	}
	if cause == nil {
		cause = context.Cause(ctx)
		k.ended(cause)
	}
	s := k.story()
	k.Got = s.outcome(k.Kind)
	if s.end != nil {
		k.Attempts = s.end.Attempt
	}
	if s.report != nil {
		k.Duration = time.Duration(s.report.DurationMS) * time.Millisecond
	}
	if cause == nil && k.Err == nil {
		k.compare(&s)
	}
	k.leave(ctx, s.jobs)
}

// ended notes why the tour ended before the kind did; nil: it did not.
func (k *kindPlay) ended(cause error) {
	s := k.story()
	switch {
	case cause == nil:
	case errors.Is(cause, errTimeUp):
		k.differs("not finished within %s; last seen %s", k.o.Timeout, cmp.Or(s.last(), "(none)"))
	case errors.Is(cause, errBusy):
		k.differs("%v", cause)
	default:
		k.Err = cause
	}
}

// act submits, cancels, retries, and waits for deliveries, as the kind wants it.
func (k *kindPlay) act(ctx context.Context) error {
	k.facts.expect(k.Kind, k.intent.N, k.intent.Tickets)
	if strings.HasPrefix(k.Kind, "WEBHOOK_") {
		if err := k.subscribe(ctx); err != nil {
			return err
		}
	}
	if k.stopsService() {
		return k.playAcrossOutage(ctx)
	}
	k.engine.Play(ctx, k.intent)
	for tries := 1; k.Kind == "CANCEL_DURING_RUN" && ctx.Err() == nil; tries++ {
		if s := k.story(); s.last() != client.Succeeded {
			break // else it had ended before it could be canceled, which is nobody's fault
		}
		if tries == cancelTries {
			return fmt.Errorf("each of %d jobs had ended before it could be canceled", cancelTries)
		}
		k.intent.N, k.intent.Key = k.tickets.Add(1), fmt.Sprintf("%s-again-%d", k.intent.Key, tries)
		k.facts.expect(k.Kind, k.intent.N, 1)
		k.engine.Play(ctx, k.intent)
	}
	if s := k.story(); k.webhook != nil && s.last() == client.Succeeded {
		return k.awaitDeliveries(ctx, s.jobs[0])
	}
	return nil
}

// playAcrossOutage lets the job's time pass while the service is down.
func (k *kindPlay) playAcrossOutage(ctx context.Context) error {
	k.intent.Ahead = outageLead
	over := make(chan struct{})
	go func() {
		defer close(over)
		k.engine.Play(ctx, k.intent)
	}()
	defer func() { <-over }()
	for len(k.facts.of(k.Kind)) == 0 {
		if err := load.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	s := k.story()
	if len(s.jobs) == 0 {
		return nil // what was answered is judged
	}
	k.progress.see(k.Kind, "while the service is down")
	defer k.transport.hold()()
	k.transport.CloseIdleConnections() // they must not hold up the service's end
	times, err := k.o.Outage(ctx, s.due.Add(stays))
	k.outage = &times
	return err
}

// subscribe registers the kind's webhook, for the successes of all jobs: there is
// no narrower event.
func (k *kindPlay) subscribe(ctx context.Context) error {
	request := client.WebhookRequest{Events: []string{"job.succeeded"}, Description: "simulator: " + k.Kind}
	var w *client.Webhook
	err := k.receiver.Register(0, receiverName(k.Kind), func(url string) (id, secret string, err error) {
		request.URL = url
		if w, err = k.account.Client.CreateWebhook(ctx, request); err != nil {
			return "", "", err
		}
		k.facts.registered(k.Kind, w.WebhookID) // before what comes to it is noted
		return w.WebhookID, w.Secret, nil
	})
	var problem *client.Problem
	if errors.As(err, &problem) {
		for _, v := range problem.Violations {
			if v.Pointer == "/url" {
				return k.unreachable(v.Detail)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("the webhook cannot be registered: %w", err)
	}
	k.webhook = w
	switch {
	case w.Secret == "":
		return errors.New("the service registered the webhook without a secret")
	case !strings.HasPrefix(w.Secret, "whsec_"):
		k.differs("the webhook's secret does not begin with whsec_")
	}
	if w.CreatedAt.IsZero() {
		k.differs("the registration of the webhook has no created_at")
	}
	return nil
}

// errUnreachable is wrapped when the service cannot call the receiver, so that
// nothing can be judged.
var errUnreachable = errors.New("the service cannot deliver to the receiver")

func (k *kindPlay) unreachable(why string) error {
	return fmt.Errorf("%w at %s (%s): set FORGERUN_WEBHOOK_ALLOW_PRIVATE=true at the service if that is a private or loopback address, "+
		"or give one that it can reach with --receiver-addr and --receiver-url", errUnreachable, k.receiver.Base(), why)
}

// notReached are the errors of tries that the receiver did not see.
var notReached = []string{"ADDRESS_FORBIDDEN", "CONNECTION_FAILED", "CONNECTION_LOST", "NAME_NOT_RESOLVED", "TLS_FAILED", "TIMEOUT"}

// awaitDeliveries waits until what is sent of the job is delivered or given up, as
// long as the tour is patient, and then a little for one delivery too many.
func (k *kindPlay) awaitDeliveries(ctx context.Context, job string) error {
	k.progress.see(k.Kind, "delivering")
	for began := time.Now(); time.Since(began) < k.o.Patience; {
		pending, known := false, false
		for d, err := range k.account.Client.JobDeliveries(ctx, job, client.DeliveryFilter{PageSize: 100}) {
			if err != nil {
				return err
			}
			if d.WebhookID != "" && d.WebhookID != k.webhook.WebhookID {
				continue
			}
			known = known || d.WebhookID != ""
			pending = pending || d.State == "PENDING"
			if d.WebhookID != "" && d.LastError != nil && slices.Contains(notReached, d.LastError.Code) && !k.received() {
				return k.unreachable(d.LastError.Code)
			}
		}
		if known && !pending {
			return load.Sleep(ctx, 2*stays) // a slow receiver may be answering
		}
		if err := load.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// received reports whether the receiver has seen a try of the kind's job.
func (k *kindPlay) received() bool {
	return slices.ContainsFunc(k.facts.of(k.Kind), func(f history.Fact) bool {
		return f.Kind == history.Received || f.Kind == history.Strange
	})
}

// judge asks the service about the kind's jobs and holds all that is known of them
// against the invariants. Of a kind that was cut short only answers are judged.
func (k *kindPlay) judge(ctx context.Context, cut bool) {
	run := judge.RunContext{
		Run: k.run, Tickets: k.tickets.Load(), TimeScale: k.o.TimeScale, DeliveryTries: k.o.DeliveryTries,
		DeliveryOverdue: overdue, Interrupted: cut,
	}
	if k.webhook != nil {
		run.Webhooks = []judge.Webhook{{ID: k.webhook.WebhookID, Events: []string{"job.succeeded"}}}
	}
	if !cut {
		collecting, cancel := context.WithTimeout(ctx, collectLimit)
		defer cancel()
		run.Collected, _ = collect.Run(collecting, collect.Config{
			Run: k.run, Since: k.began.Add(-time.Minute), Accounts: []collect.Account{k.account}, SampleReports: 100,
			WorkKind: k.Kind, DeliveryLogs: true,
		}, k.facts)
		if ctx.Err() != nil {
			return // what could not be read is no finding
		}
		for source, why := range run.Collected.Missing {
			k.differs("the %s could not be read: %s", source, why)
		}
	}
	verdict, err := judge.Judge(context.WithoutCancel(ctx), judge.FactList(k.facts.of(k.Kind)), run)
	if err != nil {
		k.differs("%v", err)
		return
	}
	for _, v := range verdict.Violations {
		if !errors.Is(k.Err, errUnreachable) {
			k.differs("%s", v.What)
		}
	}
}

// compare holds what became of the kind against what is particular to it.
func (k *kindPlay) compare(s *story) {
	judged := k.Findings
	k.Findings = nil
	defer func() { // what is particular to the kind says most
		if k.Findings = append(k.Findings, judged...); !k.Cut && k.Got != k.Expected && len(k.Findings) == 0 {
			k.differs("got %s, expected %s", cmp.Or(k.Got, "(none)"), k.Expected)
		}
	}()
	d := s.delivery
	if d != nil && d.State == "PENDING" {
		k.Cut = true
		k.Notes = append(k.Notes, fmt.Sprintf("after %s the delivery is still %s: %d tries made, the next one due at %s; "+
			"its end was not waited for (--webhook-patience)", k.o.Patience, d.State, d.Attempts, d.Next.UTC().Format("15:04:05.000Z")))
		if k.o.DeliveryTries > 0 {
			k.differs("the delivery was not complete within %s", k.o.Patience)
		}
		if k.Kind != "WEBHOOK_RETRIES_EXHAUSTED" && d.Attempts > 1 {
			k.differs("the delivery is still %s after %d tries, expected %s", d.State, d.Attempts, k.Expected)
		}
	}
	queuedAt, ok := s.entered(client.Queued)
	switch {
	case k.outage != nil && !k.outage.Down.Before(s.due):
		k.differs("the service took until %s after the job's time to stop, so nothing was shown", show(k.outage.Down.Sub(s.due)))
	case k.outage != nil && ok && queuedAt.Before(k.outage.Restarted):
		k.differs("the job was queued %s before the service was started again", show(k.outage.Restarted.Sub(queuedAt)))
	case k.outage != nil && ok && queuedAt.Sub(k.outage.Ready) > recovery:
		k.differs("the job was queued %s after the service was back, allowed are %s", show(queuedAt.Sub(k.outage.Ready)), recovery)
	case k.Kind == "SCHEDULED_ON_TIME" && ok && queuedAt.Sub(s.due) > punctual:
		k.differs("the job was queued %s after its time, allowed are %s", show(queuedAt.Sub(s.due)), punctual)
	}
	if _, ran := s.entered(client.Running); k.Kind == "CANCEL_DURING_RUN" && s.last() == client.Canceled && !ran {
		k.differs("the job was canceled before it ran")
	}
}

// leave cancels the jobs that are not final and removes the webhook, also when the
// tour was interrupted.
func (k *kindPlay) leave(ctx context.Context, jobs []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveLimit)
	defer cancel()
	if k.webhook != nil {
		_ = k.account.Client.DeleteWebhook(ctx, k.webhook.WebhookID)
	}
	states := map[string]string{}
	for _, f := range k.facts.of(k.Kind) {
		states[f.Job] = cmp.Or(stateIn(f), states[f.Job])
	}
	for _, job := range jobs {
		if j := (client.Job{State: states[job]}); !j.Final() {
			_, _ = k.account.Client.Cancel(ctx, job) // what went wrong before is known already
		}
	}
}

// show rounds a duration to what a reader needs.
func show(d time.Duration) string { return d.Round(time.Millisecond).String() }
