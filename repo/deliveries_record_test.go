package repo_test

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/repo/repotest"
)

// strict disables a webhook at the third failure in a row.
func strict(c *repo.Config) {
	c.Webhooks = repo.WebhookLimits{DisableFailures: 3, DisableAfter: time.Nanosecond}
}

// hookRow shows all that is stored of a webhook, and the version of its row.
func (f *fixture) hookRow(id job.ID) string {
	return one[string](f, `SELECT xmin::text || xmax::text || to_jsonb(w) FROM webhooks w WHERE webhook_id = $1`, id.String())
}

func TestRecordIsFenced(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	f.submit()
	p := f.claimAll(hook, 1)[0]
	row := f.hookRow(hook)
	require.Equal(t, job.Recorded{Number: 1}, f.record(delivered(p)))
	require.Equal(t, row, f.hookRow(hook), "a success of a healthy webhook leaves it alone")
	stored := one[string](f, `SELECT to_jsonb(d)::text FROM deliveries d`)
	for name, r := range map[string]job.DeliveryResult{"repeated": delivered(p), "another result": givenUp(p)} {
		_, err := f.store.RecordDelivery(f.ctx(), r)
		require.ErrorIs(t, err, job.ErrStale, name)
	}
	require.Equal(t, stored, one[string](f, `SELECT to_jsonb(d)::text FROM deliveries d`))

	must(f.store.Redeliver(f.ctx(), f.client, job.DeliveryOwner{WebhookID: hook}, p.ID))(t)
	_, err := f.store.RecordDelivery(f.ctx(), delivered(p))
	require.ErrorIs(t, err, job.ErrStale, "nobody has claimed it")
	next := f.claimAll(hook, 1)[0]
	_, err = f.store.RecordDelivery(f.ctx(), givenUp(p))
	require.ErrorIs(t, err, job.ErrStale, "somebody else has")
	require.Equal(t, 2, f.record(delivered(next)).Number)
	require.Equal(t, row, f.hookRow(hook))
	f.checkInvariants()
}

func TestHealthOfAWebhook(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	for range 4 {
		f.submit()
	}
	p := f.claimAll(hook, 4)
	f.record(refused(p[0], time.Hour))
	since := f.webhook(hook).FailingFrom
	require.WithinDuration(t, time.Now(), *since, testkit.Patience)
	f.record(givenUp(p[1]))
	w := f.webhook(hook)
	require.Equal(t, 2, w.Failures)
	require.Equal(t, since, w.FailingFrom, "of the first one")
	f.submit()
	require.Equal(t, 2, f.claimAll(hook, 1)[0].Target.Failures)
	f.record(delivered(p[2]))
	w = f.webhook(hook)
	require.Zero(t, w.Failures)
	require.Nil(t, w.FailingFrom)
	f.checkInvariants()
}

// Results of one webhook that share a statement count together, and a success among them counts most.
func TestResultsOfOneFlush(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		successes, failures int
		want                []int
	}{
		"failures": {0, 5, []int{7}},
		"mixed":    {1, 4, []int{0, 1}}, // one of the first two may end last
	} {
		t.Run(name, func(t *testing.T) {
			f := setup(t, patient)
			hook := f.subscribe(job.EventCreated)
			for range 9 {
				f.submit()
			}
			p := f.claimAll(hook, 9)
			unlock := f.lock(`LOCK TABLE deliveries IN SHARE MODE`)
			done := make(chan error, 9)
			send := func(r job.DeliveryResult) {
				go func() { _, err := f.store.RecordDelivery(f.ctx(), r); done <- err }()
			}
			for i := range 2 { // each flusher has one, and waits
				send(givenUp(p[i]))
				f.awaitBlocked(i + 1)
			}
			for i := range test.successes + test.failures {
				if i < test.successes {
					send(delivered(p[2+i]))
				} else {
					send(givenUp(p[2+i]))
				}
			}
			f.awaitQueued("record", test.successes+test.failures)
			unlock()
			for range 2 + test.successes + test.failures {
				require.NoError(t, <-done)
			}
			require.Contains(t, test.want, f.webhook(hook).Failures)
			require.Equal(t, 3, f.awaitFlushed("record", 7))
		})
	}
}

// Ten processes see a webhook fail at once: it is disabled once, and its owner is told once.
func TestFailingWebhookIsDisabledOnce(t *testing.T) {
	f := setup(t, strict)
	hook, witness := f.subscribe(job.EventCreated, job.EventWebhookDisabled), f.subscribe(job.EventWebhookDisabled)
	const many = 10
	for range many {
		f.submit()
	}
	claimed := f.claimAll(hook, many)
	answers := make([]job.Recorded, many)
	inParallel(many, func(i int) {
		s := repotest.OpenURL(t, f.url, strict)
		answers[i] = must(s.RecordDelivery(f.ctx(), givenUp(claimed[i])))(t)
	})
	told := 0
	for _, a := range answers {
		if a.Disabled != "" {
			require.Equal(t, job.DisabledFailing, a.Disabled)
			told++
		}
	}
	require.Equal(t, 1, told)
	w := f.webhook(hook)
	require.Equal(t, job.DisabledFailing, w.Disabled.Reason)
	require.GreaterOrEqual(t, w.Failures, 3)
	notices := f.claimAll(witness, 10)
	require.Len(t, notices, 1)
	require.Equal(t, hook, notices[0].Occurrence.Webhook)
	at := must(job.Time(w.Disabled.At).MarshalText())(t)
	require.JSONEq(t, `{"webhookId": "`+hook.String()+`", "reason": "FAILING", "text": "`+job.DisabledFailing.Text()+`",
		"language": "en", "disabledAt": "`+string(at)+`"}`,
		string(notices[0].Occurrence.Data))
	require.Equal(t, 1, f.count("client_events"))
	require.Zero(t, one[int](f, `SELECT count(*)::int FROM deliveries WHERE webhook_id = $1 AND event_name = 'webhook.disabled'`,
		hook.String()))
	f.checkInvariants()
}

func TestDisablingTakesBothLimits(t *testing.T) {
	f := setup(t, func(c *repo.Config) { c.Webhooks = repo.WebhookLimits{DisableFailures: 2, DisableAfter: time.Hour} })
	hook := f.subscribe(job.EventCreated)
	for range 4 {
		f.submit()
	}
	p := f.claimAll(hook, 4)
	for i := range 3 {
		require.Empty(t, f.record(givenUp(p[i])).Disabled)
	}
	f.exec(`UPDATE webhooks SET failing_since = failing_since - interval '1 hour'`)
	require.Equal(t, job.DisabledFailing, f.record(givenUp(p[3])).Disabled)
}

// A failure on this side is not the receiver's, and costs no try.
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
		require.NotNil(t, recorded.NextAttemptAt)
		recorded.NextAttemptAt = nil
		require.Equal(t, job.Recorded{Number: i + 1}, recorded)
	}
	require.Zero(t, f.webhook(hook).Failures)
	require.Nil(t, f.webhook(hook).Disabled)
	p := f.claimAll(hook, 1)[0]
	f.record(refused(p, 0))
	require.Equal(t, 1, f.webhook(hook).Failures)
	p = f.claimAll(hook, 1)[0]
	require.Equal(t, []int{5, 1, 1}, []int{p.Attempts, p.Tries, p.Target.Failures})
	r := givenUp(p)
	r.Sent.Attempt.Error = job.SendInternal
	f.record(r)
	require.Equal(t, 1, f.webhook(hook).Failures, "it is no success either")
	f.checkInvariants()
}

// The log of a delivery that is sent again and again does not grow for ever.
func TestLatestAttemptsAreKept(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	f.submit()
	other := f.claimAll(hook, 1)[0]
	f.record(delivered(other))
	f.submit()
	p := f.claimAll(hook, 1)[0]
	const before = 99
	f.exec(`INSERT INTO delivery_attempts (delivery_id, number, started_at, duration_ms) SELECT $1, i, now(), 1 FROM generate_series(1,
		$2::int) i`, p.ID.String(), before)
	f.exec(`UPDATE deliveries SET attempts = $2 WHERE delivery_id = $1`, p.ID.String(), before)
	owner := job.DeliveryOwner{WebhookID: hook}
	for i := range 3 {
		require.Equal(t, before+1+i, f.record(refused(p, 0)).Number)
		_, tries := must2(f.store.Delivery(f.ctx(), f.client, owner, p.ID))(t)
		require.Len(t, tries, 100)
		require.Equal(t, []int{1 + i, 100 + i}, []int{tries[0].Number, tries[99].Number})
		require.Equal(t, 101, f.count("delivery_attempts"), "and one of the other delivery")
		p = f.claimAll(hook, 1)[0]
	}
}

func TestGoneDisablesAtOnce(t *testing.T) {
	f := setup(t)
	hook := f.subscribe(job.EventCreated)
	f.submit()
	f.submit()
	p := f.claimAll(hook, 2)
	r := givenUp(p[0])
	r.Disable, r.Sent.Attempt.Status, r.Sent.Attempt.Error = job.DisabledGone, 410, job.SendGone
	require.Equal(t, job.DisabledGone, f.record(r).Disabled)
	w := f.webhook(hook)
	require.Equal(t, job.DisabledGone, w.Disabled.Reason)
	r.DeliveryID = p[1].ID
	require.Empty(t, f.record(r).Disabled, "it was disabled already")
	require.Equal(t, w, f.webhook(hook))
	require.Equal(t, 1, f.count("client_events"))
	f.checkInvariants()
}

// Everybody does everything with a few webhooks at once: nothing waits for each other in a circle, and all agrees at the end.
func TestDeliveriesUnderRandomConcurrentOperations(t *testing.T) {
	f := setup(t, strict)
	stores := []*repo.Store{f.store, repotest.OpenURL(t, f.url, strict)}
	for range 4 {
		f.subscribe("*")
	}
	hooks := f.hooks()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const people, steps = 8, 60
	errs := make([]error, people)
	inParallel(people, func(i int) {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		s := stores[i%2]
		for range steps {
			if err := deliveryWorkerStep(f, s, r, hooks[r.IntN(len(hooks))]); err != nil && !errors.Is(err, job.ErrStale) &&
				job.CodeOf(err) != job.CodeConflict {
				errs[i] = errors.Join(errs[i], err)
			}
		}
	})
	require.NoError(t, errors.Join(errs...))
	require.Zero(t, one[int](f, `SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()`))
	f.checkInvariants()
	require.NotZero(t, one[int](f, `SELECT count(*)::int FROM client_events WHERE event_name = 'webhook.disabled'`))
}

func deliveryWorkerStep(f *fixture, s *repo.Store, r *rand.Rand, hook job.ID) error {
	switch n := r.IntN(20); {
	case n < 3:
		_, err := s.InsertJob(f.ctx(), f.submission())
		return err
	case n < 14:
		claim, err := s.ClaimDeliveries(f.ctx(), f.client, hook, 1+r.IntN(5), time.Duration(r.IntN(50))*time.Millisecond)
		claimed := claim.Deliveries
		errs := make([]error, len(claimed))
		lucky := r.IntN(4) == 0
		inParallel(len(claimed), func(i int) {
			switch p := claimed[i]; {
			case i%4 == 0 && lucky:
				_, errs[i] = s.RecordDelivery(f.ctx(), delivered(p))
			case i%4 == 1:
				_, errs[i] = s.RecordDelivery(f.ctx(), refused(p, 0))
			case i%4 == 3:
				errs[i] = s.ReleaseDeliveries(f.ctx(), claimed)
			default:
				_, errs[i] = s.RecordDelivery(f.ctx(), givenUp(p))
			}
			if errors.Is(errs[i], job.ErrStale) {
				errs[i] = nil
			}
		})
		return errors.Join(append(errs, err)...)
	case n < 15:
		_, err := s.UpdateWebhook(f.ctx(), f.client, hook, enabled(r.IntN(4) > 0))
		return err
	case n < 16:
		_, err := s.RedeliverFailed(f.ctx(), f.client, hook, time.Time{}, 5)
		return err
	case n < 17:
		_, err := s.ReplayEvents(f.ctx(), f.client, hook, time.Now().Add(-time.Hour), job.Position{}, 5)
		return err
	case n < 18:
		_, err := s.FailOrphans(f.ctx(), 2, 5)
		return err
	case n < 19:
		_, err := s.ReclaimDeliveries(f.ctx(), 5)
		return err
	default:
		page, err := s.Deliveries(f.ctx(), f.client, job.DeliveryQuery{Owner: job.DeliveryOwner{WebhookID: hook}, Limit: 1})
		if err == nil && len(page.Deliveries) > 0 {
			d := page.Deliveries[0]
			if _, err = s.Redeliver(f.ctx(), f.client, job.DeliveryOwner{WebhookID: hook}, d.ID); err == nil && r.IntN(3) == 0 && !d.JobID.IsZero() {
				if _, _, err = s.Cancel(f.ctx(), f.client, d.JobID); err == nil {
					err = s.Delete(f.ctx(), f.client, d.JobID)
				}
			}
			if job.CodeOf(err) == job.CodeRequestNotFound || job.CodeOf(err) == job.CodeJobGone {
				err = nil // somebody deleted the job
			}
		}
		return err
	}
}
