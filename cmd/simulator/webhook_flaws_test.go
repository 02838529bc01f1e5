package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/tour"
)

// allWebhookKinds is the verdict's list when each of the five differs.
const allWebhookKinds = "WEBHOOK_SUCCESS, WEBHOOK_TIMEOUT, WEBHOOK_5XX, WEBHOOK_RETRIES_EXHAUSTED, WEBHOOK_SLOW_RECEIVER"

// TestTourFindsWebhookFlaws seeds one fault of deliveries at a time.
func TestTourFindsWebhookFlaws(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flaws  webhookFlaws
		tamper flaws
		kinds  string
		reason string
	}{
		"no delivery": {
			flaws: webhookFlaws{none: true},
			kinds: allWebhookKinds, reason: "event 5 (job.succeeded) has no delivery to webhook ",
		},
		"never retried": {
			flaws:  webhookFlaws{noRetry: true},
			kinds:  "WEBHOOK_TIMEOUT, WEBHOOK_5XX, WEBHOOK_RETRIES_EXHAUSTED",
			reason: " is PENDING, and was due at 00:00:00.450000Z, before the end",
		},
		"given up at once": {
			flaws:  webhookFlaws{earlyFailure: true},
			kinds:  "WEBHOOK_TIMEOUT, WEBHOOK_5XX, WEBHOOK_RETRIES_EXHAUSTED",
			reason: " is FAILED (HTTP_5XX, last status 503) after 1 attempts of 4 ",
		},
		"given up too early": {
			flaws: webhookFlaws{fewTries: true},
			kinds: "WEBHOOK_RETRIES_EXHAUSTED", reason: " is FAILED (HTTP_5XX, last status 500) after 3 attempts of 4 ",
		},
		"failure as success": {
			flaws:  webhookFlaws{alwaysAccepted: true},
			kinds:  "WEBHOOK_TIMEOUT, WEBHOOK_5XX, WEBHOOK_RETRIES_EXHAUSTED",
			reason: "try 1 is logged with status 200, the receiver answered 503",
		},
		"no time limit": {
			flaws: webhookFlaws{timeLimit: time.Hour},
			kinds: "WEBHOOK_TIMEOUT", reason: "the delivery was not complete within 1m0s",
		},
		"sent after acceptance": {
			flaws: webhookFlaws{again: true},
			kinds: allWebhookKinds, reason: "the service counts 1 tries, the receiver saw 2",
		},
		"two deliveries": {
			flaws: webhookFlaws{twice: true},
			kinds: allWebhookKinds, reason: "event 5 (job.succeeded) has two deliveries to ",
		},
		"no scenario": {
			flaws: webhookFlaws{noScenario: true},
			kinds: allWebhookKinds, reason: ` of job.succeeded has work kind "", expected WEBHOOK_`,
		},
		"no attribute workkind": {
			flaws: webhookFlaws{noKind: true},
			kinds: allWebhookKinds, reason: ` of job.succeeded has the attribute workkind ""`,
		},
		"another id each time": {flaws: webhookFlaws{newIDs: true}, kinds: allWebhookKinds, reason: " came, and there is none of that id"},
		"another secret": {
			flaws:  webhookFlaws{otherSecret: true},
			kinds:  allWebhookKinds,
			reason: "a message that the webhook's secret has not signed: client: the message is not verified: no signature matches the secret",
		},
		"old timestamp": {
			flaws:  webhookFlaws{oldTimestamp: true},
			kinds:  allWebhookKinds,
			reason: "a message that the webhook's secret has not signed: client: the message is not verified: it is too old",
		},
		"another digest": {
			flaws:  webhookFlaws{otherDigest: true},
			kinds:  allWebhookKinds,
			reason: "a message that no published key has signed: client: the message is not verified: the body does not match Content-Digest",
		},
		"another body": {
			flaws:  webhookFlaws{otherBody: true},
			kinds:  allWebhookKinds,
			reason: "a message that the webhook's secret has not signed: client: the message is not verified: no signature matches the secret",
		},
		"no signature": {
			flaws:  webhookFlaws{noSignature: true},
			kinds:  allWebhookKinds,
			reason: "a message that no published key has signed: client: the message is not verified: it has no signature",
		},
		"another key": {
			flaws:  webhookFlaws{otherKey: true},
			kinds:  allWebhookKinds,
			reason: "a message that no published key has signed: client: the message is not verified: the signature does not match",
		},
		"another target": {
			flaws:  webhookFlaws{otherTarget: true},
			kinds:  allWebhookKinds,
			reason: "a message that no published key has signed: client: the message is not verified: the signature does not match",
		},
		"subject not signed": {
			flaws:  webhookFlaws{uncovered: true},
			kinds:  allWebhookKinds,
			reason: "a message that no published key has signed: client: the message is not verified: the signature does not cover ce-subject",
		},
		"no published key": {
			flaws:  webhookFlaws{noKeys: true},
			kinds:  allWebhookKinds,
			reason: "a message that no published key has signed: client: the message is not verified: the signature's key is not published",
		},
		"another subject": {flaws: webhookFlaws{otherSubject: true}, kinds: allWebhookKinds, reason: "with the subject \"jobs/1\""},
		"no secret": {
			flaws: webhookFlaws{noSecret: true},
			kinds: allWebhookKinds, reason: "the service registered the webhook without a secret",
		},
		"secret without whsec_": {
			flaws: webhookFlaws{bareSecret: true},
			kinds: allWebhookKinds, reason: "the webhook's secret does not begin with whsec_",
		},
		"events refused": {
			flaws:  webhookFlaws{refuse: "/events"},
			kinds:  allWebhookKinds,
			reason: "/v1/webhooks: RFA_JOB_VALIDATION_FAILED; /events Not so.",
		},
		"no master key": {
			flaws:  webhookFlaws{noMasterKey: true},
			kinds:  allWebhookKinds,
			reason: "/v1/webhooks: RFA_CONFIG_INVALID: Told so by the test.",
		},
		"no callback": {
			flaws: webhookFlaws{noCallback: true},
			kinds: "WEBHOOK_SUCCESS", reason: "event 2 (job.queued) has no delivery to the callback",
		},
		"another event": {
			tamper: on("delivery", "WEBHOOK_5XX", set("event_id", "x")),
			kinds:  "WEBHOOK_5XX", reason: " is of event x, which the job does not have",
		},
		"another state": {
			tamper: on("delivery", "WEBHOOK_SUCCESS", set("state", "FAILED")),
			kinds:  "WEBHOOK_SUCCESS", reason: " is FAILED (, last status 204) after 1 attempts of 4 ",
		},
		"success with an error": {
			tamper: on("delivery", "WEBHOOK_5XX", set("last_error", map[string]any{"code": "HTTP_5XX"})),
			kinds:  "WEBHOOK_5XX", reason: ": it is DELIVERED with last_error \"HTTP_5XX\"",
		},
		"not settled": {
			tamper: on("delivery", "WEBHOOK_5XX", set("settled_at", nil)),
			kinds:  "WEBHOOK_5XX", reason: ": it is DELIVERED with settled_at (none)",
		},
		"settled too soon": {
			tamper: on("delivery", "WEBHOOK_SLOW_RECEIVER", set("settled_at", "2000-01-01T00:00:00.5Z")),
			kinds:  "WEBHOOK_SLOW_RECEIVER", reason: "before the receiver answered",
		},
		"short log": {
			tamper: on("delivery", "WEBHOOK_5XX", set("attempts_log", []any{})),
			kinds:  "WEBHOOK_5XX", reason: ": it has 2 attempts and a log of 0",
		},
		"log misnumbered": {
			tamper: on("delivery", "WEBHOOK_SUCCESS", set("attempts_log", []any{map[string]any{"number": 2, "status": 204}})),
			kinds:  "WEBHOOK_SUCCESS", reason: "entry 1 of the log of tries has number 2",
		},
		"log too quick": {
			tamper: on("delivery", "WEBHOOK_SLOW_RECEIVER", set("attempts_log", []any{map[string]any{"number": 1, "status": 200}})),
			kinds:  "WEBHOOK_SLOW_RECEIVER", reason: "try 1 is logged with 0s, the receiver took 1s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(0.1)
			f.flaws = c.tamper
			f.flaws.webhooks = c.flaws
			p := play(t, f, only(append(webhookKinds(), "SUCCESS_FAST")...))
			require.Equal(t, exitDifferent, p.code, p.stdout+p.stderr)
			require.Contains(t, p.stdout, " of 6 kinds differ: "+c.kinds+".\n")
			require.Contains(t, p.stdout, c.reason)
			require.Empty(t, f.hooks, "the tour removes its webhooks")
		})
	}
}

// TestTourWithoutAReachableReceiver: nothing is wrong with a service that
// cannot call the receiver, but nothing is judged either, and how to change
// that is said.
func TestTourWithoutAReachableReceiver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		flaws webhookFlaws
		why   string
	}{
		"registration refused": {webhookFlaws{refuse: "/url"}, "(Not so.)"},
		"address forbidden":    {webhookFlaws{unreachable: "ADDRESS_FORBIDDEN"}, "(ADDRESS_FORBIDDEN)"},
		"no connection":        {webhookFlaws{unreachable: "CONNECTION_FAILED"}, "(CONNECTION_FAILED)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(0.1)
			f.flaws.webhooks = c.flaws
			p := play(t, f, only(append(webhookKinds(), "SUCCESS_FAST")...))
			require.Equal(t, exitDifferent, p.code)
			require.Contains(t, p.stdout, "5 of 6 kinds could not be judged: "+allWebhookKinds+".")
			require.Contains(t, p.stdout,
				"the service cannot deliver to the receiver at http://receiver.test/hooks "+c.why+": set FORGERUN_WEBHOOK_ALLOW_PRIVATE=true")
			require.Contains(t, p.stdout, "--receiver-url")
			require.Regexp(t, `SUCCESS_FAST .*yes`, p.stdout)
			require.Less(t, p.took, time.Minute)
		})
	}
}

// TestTourDoesNotWaitForEverySlowRetry: a service with its default times goes on
// retrying for long. The tour tells how far it came, and that is no difference.
func TestTourDoesNotWaitForEverySlowRetry(t *testing.T) {
	t.Parallel()
	f := newFake(0.1)
	f.flaws.webhooks.backoff = 25 * time.Second // then 50 s, then 100 s
	p := play(t, f, only(webhookKinds()...), func(o *tour.Options) { o.DeliveryTries = 0 })
	require.Equal(t, exitOK, p.code, p.stdout)
	require.Regexp(t, `WEBHOOK_TIMEOUT .* delivered on retry .*yes`, p.stdout)
	require.Regexp(t, `WEBHOOK_RETRIES_EXHAUSTED +SUCCEEDED, delivery FAILED +SUCCEEDED, 2 tries so far +1 .* so far\n`, p.stdout)
	require.Contains(t, p.stdout, "after 1m0s the delivery is still PENDING: 2 tries made, the next one due at 00:01:15.")
	require.Contains(t, p.stdout, "its end was not waited for (--webhook-patience)")
	require.Contains(t, p.stdout, "All 5 kinds behaved as the catalogue says, in 1m")
	require.Contains(t, p.stdout, ", as far as was waited: the end of WEBHOOK_RETRIES_EXHAUSTED was not.\n")
	require.Less(t, p.took, 70*time.Second)
	require.Empty(t, f.hooks)
}

// TestTourOfAnUnknownService: without knowledge of the service's retries, any
// number above 0 is right.
func TestTourOfAnUnknownService(t *testing.T) {
	t.Parallel()
	f := newFake(0.1)
	f.flaws.webhooks.fewTries = true
	p := play(t, f, only(webhookKinds()...), func(o *tour.Options) { o.DeliveryTries = 0 })
	require.Equal(t, exitOK, p.code, p.stdout)
	f = newFake(0.1)
	f.flaws.webhooks.earlyFailure = true
	p = play(t, f, only("WEBHOOK_RETRIES_EXHAUSTED"), func(o *tour.Options) { o.DeliveryTries = 0 })
	require.Equal(t, exitDifferent, p.code)
	require.Contains(t, p.stdout, "after 1 attempts of 0 (0: unknown)")
}

// TestTourWithAShortTimeLimit names the limit as the reason.
func TestTourWithAShortTimeLimit(t *testing.T) {
	t.Parallel()
	f := newFake(0.1)
	f.flaws.webhooks.timeLimit = 2 * time.Second
	p := play(t, f, only("WEBHOOK_SLOW_RECEIVER"), func(o *tour.Options) { o.Slow = 3 * time.Second })
	require.Equal(t, exitDifferent, p.code)
	require.Regexp(t, `try 1 was given up after 2[.0-9]*s, the receiver answers after 3s: the service's time limit must be longer`, p.stdout)
	require.Equal(t, 1, strings.Count(p.stdout, "try 1"))
}
