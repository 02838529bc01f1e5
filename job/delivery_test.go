package job

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeliveryPolicy(t *testing.T) {
	t.Parallel()
	const base = 8 * time.Second
	policy := DeliveryPolicy{MaxRetries: 8, Backoff: Backoff{Base: base, Max: 10 * base}}
	now := time.Now()
	for name, c := range map[string]struct {
		tries, attempts int
		class           SendError
		retryAfter      time.Duration
		age             time.Duration
		state           DeliveryState
		least, most     time.Duration
	}{
		"delivered":                   {state: DeliveryDelivered},
		"410 response":                {class: SendGone, state: DeliveryFailed},
		"the first failure":           {class: SendServerError, state: DeliveryPending, least: base / 2, most: base},
		"the third failure":           {tries: 2, attempts: 9, class: SendServerError, state: DeliveryPending, least: 2 * base, most: 4 * base},
		"failure before the last try": {tries: 7, class: SendServerError, state: DeliveryPending, least: 5 * base, most: 10 * base},
		"failure of the last try":     {tries: 8, class: SendServerError, state: DeliveryFailed},
		"a timeout":                   {class: SendTimeout, state: DeliveryPending, least: base, most: 2 * base},
		"429 response":                {class: SendRateLimited, state: DeliveryPending, least: base, most: 2 * base},
		"short Retry-After":           {class: SendServerError, retryAfter: time.Second, state: DeliveryPending, least: base, most: base},
		"long Retry-After": {class: SendServerError, retryAfter: 9 * time.Second, state: DeliveryPending, least: 9 * time.Second,
			most: 9 * time.Second},
		"too long Retry-After": {class: SendServerError, retryAfter: time.Hour, state: DeliveryPending, least: 2 * base, most: 2 * base},
		"too long Retry-After in a 429": {tries: 7, class: SendRateLimited, retryAfter: time.Hour, state: DeliveryPending, least: 20 * base,
			most: 20 * base},
		"internal error": {tries: 8, class: SendInternal, state: DeliveryPending, least: base / 2, most: base},
		"internal error, old delivery": {attempts: 99, age: 71 * time.Hour, class: SendInternal, state: DeliveryPending, least: 5 * base,
			most: 10 * base},
		"internal error, too old delivery": {age: 73 * time.Hour, class: SendInternal, state: DeliveryFailed},
		"receiver's error, old delivery":   {age: 73 * time.Hour, class: SendServerError, state: DeliveryPending, least: base / 2, most: base},
	} {
		d := &Delivery{Tries: c.tries, Attempts: c.attempts, CreatedAt: now.Add(-c.age)}
		sent := Sent{Attempt: DeliveryAttempt{StartedAt: now, Error: c.class}, RetryAfter: c.retryAfter}
		for random, want := range map[float64]time.Duration{0: c.least, 1: c.most} {
			state, wait := policy.Next(d, sent, random)
			require.Equal(t, c.state, state, name)
			require.Equal(t, want, wait, name)
		}
	}
}
