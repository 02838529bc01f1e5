package verdict_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

func by(connection uint64, key string) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { x.Connection, x.KeyID = connection, key }
}

func alone(x *verdict.Exchange)        { x.Reused = false }
func noRetryAfter(x *verdict.Exchange) { x.RetryAfter = nil }
func tagged(x *verdict.Exchange)       { x.IfNoneMatch = x.ETag }
func unchanged(x *verdict.Exchange)    { x.Status, x.Shown, x.Final = 304, nil, nil }

func accepting(media string) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { x.Accept = media }
}

var polling = []string{"retry-after", "conditional-requests", "stop-at-end", "list-polling", "backoff"}

func TestPollersThatAreRight(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(*trace){
		"share ETags among their connections": func(t *trace) {
			t.send(submit(7))
			t.each(8, func(n byte) {
				t.wait(time.Second).send(poll(7, by(uint64(1+n%2), "k1"), func(x *verdict.Exchange) {
					if x.ETag = fmt.Sprintf("%q", fmt.Sprint(n+1)); n > 0 {
						x.IfNoneMatch = fmt.Sprintf("%q", fmt.Sprint(n))
					}
				}))
			})
		},
		"get a response without an ETag on one of two connections": func(t *trace) {
			t.send(submit(7))
			t.each(5, func(byte) {
				t.wait(time.Second).send(poll(7, by(1, "k1"))).wait(time.Second)
				t.send(poll(7, by(2, "k1"), func(x *verdict.Exchange) { x.ETag, x.IfNoneMatch = "", `"1"` }))
			})
		},
		"read once for each queued delivery": func(t *trace) {
			t.send(submit(7)).send(poll(7)).each(5, func(byte) { t.deliver(7) })
			t.each(5, func(byte) { t.send(poll(7)) })
		},
		"read once for each event after the stream ended": func(t *trace) {
			events := stream("", "1", "2", "3", "4")
			events.Shown = []string{id(7)}
			t.send(submit(7)).send(poll(7)).send(events)
			t.each(4, func(byte) { t.send(poll(7)) })
		},
		"read twice before they poll": func(t *trace) {
			t.send(submit(7)).send(poll(7)).send(poll(7)).wait(time.Second).send(poll(7, tagged)).wait(time.Second).send(poll(7, tagged))
		},
		"poll in two processes with one connection each": func(t *trace) {
			t.each(8, func(n byte) { t.wait(500 * time.Millisecond).send(poll(7, tagged, by(uint64(1+n%2), "k1"))) })
		},
		"poll in two tabs over one connection": func(t *trace) {
			t.each(8, func(n byte) {
				t.wait(time.Duration(280+440*int(n%2)) * time.Millisecond).send(poll(7, tagged, by(1, "k1")))
			})
		},
		"poll in two processes with a new connection per request": func(t *trace) {
			t.each(8, func(n byte) {
				t.wait(time.Duration(280+440*int(n%2)) * time.Millisecond).send(poll(7, tagged, alone, by(uint64(n+1), "k1")))
			})
		},
		"poll for two users": func(t *trace) {
			t.each(8, func(n byte) { t.wait(500 * time.Millisecond).send(poll(7, tagged, by(1, fmt.Sprint("k", n%2)))) })
		},
		"poll two representations": func(t *trace) {
			t.each(8, func(n byte) {
				media := []string{"application/json", "application/problem+json"}[n%2]
				t.wait(500 * time.Millisecond).send(poll(7, by(1, "k1"), accepting(media), func(x *verdict.Exchange) {
					x.ETag = fmt.Sprintf("%q", media)
				}, tagged))
			})
		},
		"open a finished job in five processes": func(t *trace) {
			t.send(poll(7, by(1, "k1"))).wait(time.Second).send(poll(7, by(1, "k1"), final, tagged))
			t.each(5, func(n byte) { t.send(poll(7, final, alone, by(uint64(2+n), "k1"))) })
		},
		"open a finished job at random times": func(t *trace) {
			t.send(poll(7, by(1, "k1"))).wait(time.Second).send(poll(7, by(1, "k1"), final, tagged))
			for _, ms := range []time.Duration{200, 3000, 50, 1700, 90} {
				t.wait(ms * time.Millisecond).send(poll(7, final, tagged, by(1, "k1")))
			}
		},
		"open a finished job with a new connection per request": func(t *trace) {
			t.send(poll(7, alone, by(1, "k1"))).wait(time.Second).send(poll(7, alone, by(2, "k1"), final, tagged)).wait(time.Second)
			t.each(5, func(n byte) { t.send(poll(7, final, alone, by(uint64(3+n), "k1"))) })
		},
		"read a finished job once for each queued delivery": func(t *trace) {
			t.send(submit(7)).each(5, func(byte) { t.deliver(7) })
			t.each(5, func(byte) { t.send(poll(7, final, tagged)) })
		},
		"continue while another process is refused": func(t *trace) {
			t.send(poll(7, tagged, by(1, "k1"))).send(poll(7, tagged, by(2, "k1")))
			t.wait(time.Second).send(poll(7, unavailable, by(1, "k1"))).wait(200 * time.Millisecond).send(poll(7, tagged, by(2, "k1")))
			t.wait(2 * time.Second).send(poll(7, tagged, by(1, "k1")))
		},
		"poll without Retry-After": func(t *trace) {
			t.each(200, func(byte) { t.wait(100 * time.Millisecond).send(poll(7, tagged, noRetryAfter)) })
		},
	} {
		for _, standards := range []bool{false, true} {
			trace := newTrace()
			trace.Standards, trace.Session.Rules = standards, polling
			does(trace)
			broken, _ := statuses(trace.judge())
			require.Empty(t, broken, "%s, any API: %v", name, standards)
		}
	}
}

func TestPollersThatAreWrong(t *testing.T) {
	t.Parallel()
	const warn, fail, not = verdict.Warn, verdict.Fail, verdict.NotTested
	for rule, mistakes := range map[string]clients{
		"retry-after": {
			"wait half of Retry-After": {warn, warn, func(t *trace) {
				t.each(6, func(byte) { t.wait(500 * time.Millisecond).send(poll(7, tagged)) })
			}},
			"do not wait, with a new connection each": {warn, warn, func(t *trace) {
				t.each(6, func(n byte) { t.send(poll(7, tagged, alone, by(uint64(n), "k1"))) })
			}},
			"do not wait, for several short jobs": {warn, warn, func(t *trace) {
				t.each(4, func(n byte) { t.send(poll(n)).send(poll(n, tagged)) })
			}},
			"read more often than they are notified": {warn, warn, func(t *trace) {
				t.send(poll(7)).deliver(7).deliver(7).each(8, func(byte) { t.send(poll(7, tagged)) })
			}},
			"read without a pause and without Retry-After": {warn, warn, func(t *trace) {
				t.each(100, func(byte) { t.send(poll(7, tagged, noRetryAfter)) })
			}},
		},
		"conditional-requests": {
			"send no ETag": {warn, not, func(t *trace) {
				t.each(5, func(byte) { t.wait(time.Second).send(poll(7)) })
			}},
			"always send an old ETag": {warn, warn, func(t *trace) {
				t.each(5, func(n byte) {
					t.wait(time.Second).send(poll(7, conditional, func(x *verdict.Exchange) { x.ETag = fmt.Sprintf("%q", fmt.Sprint(n+2)) }))
				})
			}},
			"send an ETag only once": {warn, warn, func(t *trace) {
				t.send(poll(7)).wait(time.Second).send(poll(7, tagged, unchanged))
				t.each(5, func(byte) { t.wait(time.Second).send(poll(7)) })
			}},
		},
		"stop-at-end": {
			"never stop": {warn, warn, func(t *trace) {
				t.send(poll(7)).wait(time.Second).send(poll(7, final, tagged))
				t.each(4, func(byte) { t.wait(time.Second).send(poll(7, final, tagged)) })
			}},
			"never stop, with a new connection each": {warn, warn, func(t *trace) {
				t.send(poll(7, alone, by(1, "k1"))).wait(time.Second).send(poll(7, final, tagged, alone, by(2, "k1")))
				t.each(4, func(n byte) { t.wait(time.Second).send(poll(7, final, tagged, alone, by(uint64(3+n), "k1"))) })
			}},
		},
		"list-polling": {
			"read a list in a loop": {warn, warn, func(t *trace) {
				t.send(submit(7)).deliver(7).each(6, func(byte) { t.wait(300 * time.Millisecond).send(list(7)) })
			}},
		},
		"backoff": {
			"repeat a refused read too early over a new connection": {fail, warn, func(t *trace) {
				t.send(poll(7, unavailable, by(1, "k1"))).wait(time.Second).send(poll(7, by(2, "k1")))
			}},
		},
	} {
		checkClients(t, rule, mistakes)
	}
}
