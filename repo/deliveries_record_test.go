package repo_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

func strict(c *repo.Config) {
	c.Webhooks = repo.WebhookLimits{DisableFailures: 3, DisableAfter: time.Nanosecond}
}

func (f *fixture) hookRow(id job.ID) string {
	return one[string](f, `SELECT xmin::text || xmax::text || to_jsonb(w) FROM webhooks w WHERE webhook_id = $1`, id.String())
}

func (f *fixture) requireStaleResult(r job.DeliveryResult, why string) {
	require.ErrorIs(f.t, errOf(f.store.RecordDelivery(f.ctx(), r)), job.ErrStale, why)
}

func TestRecordIsFenced(t *testing.T) {
	f := setup(t)
	hook, claimed := f.claimed(1)
	p, row := claimed[0], f.hookRow(hook)
	require.Equal(t, job.Recorded{Number: 1}, f.record(delivered(p)))
	require.Equal(t, row, f.hookRow(hook), "a success does not change a healthy webhook")
	stored := one[string](f, `SELECT to_jsonb(d)::text FROM deliveries d`)
	f.requireStaleResult(delivered(p), "the result was recorded before")
	f.requireStaleResult(givenUp(p), "another result was recorded before")
	require.Equal(t, stored, one[string](f, `SELECT to_jsonb(d)::text FROM deliveries d`))

	f.redeliver(job.DeliveryOwner{WebhookID: hook}, p.ID)
	f.requireStaleResult(delivered(p), "the delivery is not claimed")
	next := f.claimAll(hook, 1)[0]
	f.requireStaleResult(givenUp(p), "the delivery was claimed again")
	require.Equal(t, 2, f.record(delivered(next)).Number)
	require.Equal(t, row, f.hookRow(hook))
	f.checkInvariants()
}

func TestHealthOfAWebhook(t *testing.T) {
	f := setup(t)
	hook, p := f.claimed(4)
	f.record(refused(p[0], time.Hour))
	since := f.webhook(hook).FailingFrom
	require.WithinDuration(t, time.Now(), *since, testkit.Patience)
	f.record(givenUp(p[1]))
	w := f.webhook(hook)
	require.Equal(t, 2, w.Failures)
	require.Equal(t, since, w.FailingFrom, "the time of the first failure")
	f.submit()
	require.Equal(t, 2, f.claimAll(hook, 1)[0].Target.Failures)
	f.record(delivered(p[2]))
	w = f.webhook(hook)
	require.Zero(t, w.Failures)
	require.Nil(t, w.FailingFrom)
	f.checkInvariants()
}

// Results of one webhook in the same statement are combined. A success takes precedence.
func TestResultsOfOneFlush(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		successes int
		want      []int
	}{
		"failures": {0, []int{7}},
		"mixed":    {1, []int{0, 1}}, // 1 if a failure is written after the success
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, patient)
			hook, p := f.claimed(7)
			unlock := f.lock(`LOCK TABLE deliveries IN SHARE MODE`)
			var calls []<-chan error
			for i := range p {
				r := givenUp(p[i])
				if i >= 2 && i < 2+test.successes {
					r = delivered(p[i])
				}
				calls = append(calls, begin(func() error { return errOf(f.store.RecordDelivery(f.ctx(), r)) }))
				if i < 2 { // the first two results keep both flushers busy
					f.awaitBlocked(i + 1)
				}
			}
			f.awaitQueued("record", 5)
			unlock()
			for _, recorded := range calls {
				require.NoError(t, <-recorded)
			}
			require.Contains(t, test.want, f.webhook(hook).Failures)
			require.Equal(t, 3, f.awaitFlushed("record", 7))
		})
	}
}

func TestFailingWebhookIsDisabledOnce(t *testing.T) {
	f := setup(t, strict)
	hook, witness := f.subscribe(job.EventCreated, job.EventWebhookDisabled), f.subscribe(job.EventWebhookDisabled)
	const many = 10
	f.submitted(many)
	claimed := f.claimAll(hook, many)
	var disabled atomic.Int32
	f.atOnce(many, func(i int) error {
		answer, err := repotest.OpenURL(t, f.url, strict).RecordDelivery(f.ctx(), givenUp(claimed[i]))
		if answer.Disabled == job.DisabledFailing {
			disabled.Add(1)
		}
		return err
	})
	require.EqualValues(t, 1, disabled.Load())
	w := f.webhook(hook)
	require.Equal(t, job.DisabledFailing, w.Disabled.Reason)
	require.GreaterOrEqual(t, w.Failures, 3)
	notices := f.claimAll(witness, 10)
	require.Len(t, notices, 1)
	require.Equal(t, hook, notices[0].Occurrence.Webhook)
	at := must(job.Time(w.Disabled.At).MarshalText())(t)
	require.JSONEq(t, `{"webhookId": "`+hook.String()+`", "reason": "FAILING", "text": "`+job.DisabledFailing.Text()+`",
		"language": "en", "disabledAt": "`+string(at)+`"}`, string(notices[0].Occurrence.Data))
	require.Equal(t, 1, f.count("client_events"))
	require.Zero(t, f.count(`deliveries WHERE webhook_id = $1 AND event_name = 'webhook.disabled'`, hook.String()))
	f.checkInvariants()
}

func TestDisablingTakesBothLimits(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.Webhooks = repo.WebhookLimits{DisableFailures: 2, DisableAfter: time.Hour} })
	_, p := f.claimed(4)
	for i := range 3 {
		require.Empty(t, f.record(givenUp(p[i])).Disabled)
	}
	f.exec(`UPDATE webhooks SET failing_since = failing_since - interval '1 hour'`)
	require.Equal(t, job.DisabledFailing, f.record(givenUp(p[3])).Disabled)
}

func TestInternalFailuresDoNotCount(t *testing.T) {
	f := setup(t, strict)
	hook := f.subscribe(job.EventCreated)
	f.submit()
	for i := range 4 {
		p := f.claimAll(hook, 1)[0]
		require.Zero(t, p.Tries)
		r := refused(p, 0)
		r.Sent.Attempt.Status, r.Sent.Attempt.Error = 0, job.SendInternal
		recorded := f.record(r)
		require.Equal(t, job.Recorded{Number: i + 1}, recorded)
	}
	require.Zero(t, f.webhook(hook).Failures)
	require.Nil(t, f.webhook(hook).Disabled)
	f.record(refused(f.claimAll(hook, 1)[0], 0))
	require.Equal(t, 1, f.webhook(hook).Failures)
	p := f.claimAll(hook, 1)[0]
	require.Equal(t, []int{5, 1, 1}, []int{p.Attempts, p.Tries, p.Target.Failures})
	r := givenUp(p)
	r.Sent.Attempt.Error = job.SendInternal
	f.record(r)
	require.Equal(t, 1, f.webhook(hook).Failures, "an internal failure does not reset the count")
	f.checkInvariants()
}

func TestLatestAttemptsAreKept(t *testing.T) {
	f := setup(t)
	hook, claimed := f.claimed(2)
	f.record(delivered(claimed[1]))
	p := claimed[0]
	const before = 99
	f.exec(`INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms)
		SELECT $1, i, now(), 1 FROM generate_series(1, $2::int) i`, p.ID.String(), before)
	f.exec(`UPDATE deliveries SET attempts = $2 WHERE delivery_id = $1`, p.ID.String(), before)
	for i := range 3 {
		require.Equal(t, before+1+i, f.record(refused(p, 0)).Number)
		_, tries := must2(f.store.Delivery(f.ctx(), f.client, job.DeliveryOwner{WebhookID: hook}, p.ID))(t)
		require.Len(t, tries, 100)
		require.Equal(t, []int{1 + i, 100 + i}, []int{tries[0].Number, tries[99].Number})
		require.Equal(t, 101, f.count("delivery_attempts"), "one attempt belongs to the other delivery")
		p = f.claimAll(hook, 1)[0]
	}
}

func TestGoneDisablesAtOnce(t *testing.T) {
	f := setup(t)
	hook, p := f.claimed(2)
	r := givenUp(p[0])
	r.Disable, r.Sent.Attempt.Status, r.Sent.Attempt.Error = job.DisabledGone, 410, job.SendGone
	require.Equal(t, job.DisabledGone, f.record(r).Disabled)
	w := f.webhook(hook)
	require.Equal(t, job.DisabledGone, w.Disabled.Reason)
	r.DeliveryID = p[1].ID
	require.Empty(t, f.record(r).Disabled, "the webhook was already disabled")
	require.Equal(t, w, f.webhook(hook))
	require.Equal(t, 1, f.count("client_events"))
	f.checkInvariants()
}
