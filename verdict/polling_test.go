package verdict_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// by sets a request's connection and credentials.
func by(connection uint64, key string) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { x.Connection, x.KeyID = connection, key }
}

func alone(x *verdict.Exchange)     { x.Reused = false }
func untold(x *verdict.Exchange)    { x.RetryAfter = nil }
func tagged(x *verdict.Exchange)    { x.IfNoneMatch = x.ETag }
func unchanged(x *verdict.Exchange) { x.Status, x.Shown, x.Final = 304, nil, nil }

// accepting asks for a representation.
func accepting(media string) func(*verdict.Exchange) {
	return func(x *verdict.Exchange) { x.Accept = media }
}

// judgedBoth judges a client's behavior with our API and with any other one.
func judgedBoth(t *testing.T, name string, does func(*trace), check func(v map[string]verdict.Result)) {
	t.Helper()
	for _, standards := range []bool{false, true} {
		trace := newTrace()
		trace.Standards = standards
		if standards {
			trace.Session.Rules = verdict.StandardIDs()
		}
		does(trace)
		v := map[string]verdict.Result{}
		for _, r := range trace.judge().Results {
			v[r.Rule] = r
		}
		t.Log(name, standards)
		check(v)
	}
}

// A polling loop is judged, a single second read is not.
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
		"read over two connections, of which one has got an answer without an ETag": func(t *trace) {
			t.send(submit(7))
			t.each(5, func(byte) {
				t.wait(time.Second).send(poll(7, by(1, "k1"))).wait(time.Second)
				t.send(poll(7, by(2, "k1"), func(x *verdict.Exchange) { x.ETag, x.IfNoneMatch = "", `"1"` }))
			})
		},
		"read once for each delivery that waits in a queue": func(t *trace) {
			t.send(submit(7)).send(poll(7)).each(5, func(byte) { t.deliver(7) })
			t.each(5, func(byte) { t.send(poll(7)) })
		},
		"read once for each event of a stream that has ended": func(t *trace) {
			events := stream("", "1", "2", "3", "4")
			events.Shown = []string{id(7)}
			t.send(submit(7)).send(poll(7)).send(events)
			t.each(4, func(byte) { t.send(poll(7)) })
		},
		"look a second time before they poll": func(t *trace) {
			t.send(submit(7)).send(poll(7)).send(poll(7)).wait(time.Second).send(poll(7, tagged)).wait(time.Second).send(poll(7, tagged))
		},
		"poll in two processes, over a connection each": func(t *trace) {
			t.each(8, func(n byte) { t.wait(500 * time.Millisecond).send(poll(7, tagged, by(uint64(1+n%2), "k1"))) })
		},
		"poll in two tabs, over one connection": func(t *trace) {
			t.each(8, func(n byte) {
				t.wait(time.Duration(280+440*int(n%2)) * time.Millisecond).send(poll(7, tagged, by(1, "k1")))
			})
		},
		"poll in two processes, with a new connection each": func(t *trace) {
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
		"open a finished job, five of them once": func(t *trace) {
			t.send(poll(7, by(1, "k1"))).wait(time.Second).send(poll(7, by(1, "k1"), final, tagged))
			t.each(5, func(n byte) { t.send(poll(7, final, alone, by(uint64(2+n), "k1"))) })
		},
		"open a finished job at any time": func(t *trace) {
			t.send(poll(7, by(1, "k1"))).wait(time.Second).send(poll(7, by(1, "k1"), final, tagged))
			for _, ms := range []time.Duration{200, 3000, 50, 1700, 90} {
				t.wait(ms * time.Millisecond).send(poll(7, final, tagged, by(1, "k1")))
			}
		},
		"open a finished job over a new connection each, as the poller does": func(t *trace) {
			t.send(poll(7, alone, by(1, "k1"))).wait(time.Second).send(poll(7, alone, by(2, "k1"), final, tagged)).wait(time.Second)
			t.each(5, func(n byte) { t.send(poll(7, final, alone, by(uint64(3+n), "k1"))) })
		},
		"read a finished job once for each delivery that waited in a queue": func(t *trace) {
			t.send(submit(7)).each(5, func(byte) { t.deliver(7) })
			t.each(5, func(byte) { t.send(poll(7, final, tagged)) })
		},
		"read a list once for each delivery": func(t *trace) {
			t.send(submit(7)).send(list(7)).each(5, func(byte) { t.deliver(7) })
			t.each(5, func(byte) { t.send(list(7)) })
		},
		"go on where another process was refused": func(t *trace) {
			t.send(poll(7, tagged, by(1, "k1"))).send(poll(7, tagged, by(2, "k1")))
			t.wait(time.Second).send(poll(7, unavailable, by(1, "k1"))).wait(200 * time.Millisecond).send(poll(7, tagged, by(2, "k1")))
			t.wait(2 * time.Second).send(poll(7, tagged, by(1, "k1")))
		},
		"poll where nothing tells how long": func(t *trace) {
			t.each(200, func(byte) { t.wait(100 * time.Millisecond).send(poll(7, tagged, untold)) })
		},
	} {
		judgedBoth(t, name, does, func(v map[string]verdict.Result) {
			for _, rule := range []string{"retry-after", "conditional-requests", "stop-at-end", "list-polling", "backoff"} {
				require.NotContains(t, []verdict.Status{verdict.Warn, verdict.Fail}, v[rule].Status, "%s: %+v", name, v[rule])
			}
		})
	}
}

func TestPollersThatAreWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rule string
		any  bool // a standard demands it
		does func(*trace)
	}{
		"come half the time too early": {"retry-after", true, func(t *trace) {
			t.each(6, func(byte) { t.wait(500 * time.Millisecond).send(poll(7, tagged)) })
		}},
		"come at once, with a new connection each": {"retry-after", true, func(t *trace) {
			t.each(6, func(n byte) { t.send(poll(7, tagged, alone, by(uint64(n), "k1"))) })
		}},
		"come at once, for one short job after the other": {"retry-after", true, func(t *trace) {
			t.each(4, func(n byte) { t.send(poll(n)).send(poll(n, tagged)) })
		}},
		"come at any time, too early": {"retry-after", true, func(t *trace) {
			for _, ms := range []time.Duration{100, 310, 150, 240, 120, 300} {
				t.wait(ms * time.Millisecond).send(poll(7, tagged))
			}
		}},
		"read more often than they got notifications": {"retry-after", true, func(t *trace) {
			t.send(poll(7)).deliver(7).deliver(7).each(8, func(byte) { t.send(poll(7, tagged)) })
		}},
		"hammer without Retry-After": {"retry-after", true, func(t *trace) {
			t.each(100, func(byte) { t.send(poll(7, tagged, untold)) })
		}},
		"hammer a finished job": {"retry-after", true, func(t *trace) {
			t.each(100, func(byte) { t.send(poll(7, tagged, untold, final)) })
		}},
		"send no ETag": {"conditional-requests", false, func(t *trace) {
			t.each(5, func(byte) { t.wait(time.Second).send(poll(7)) })
		}},
		"send an old ETag for ever": {"conditional-requests", true, func(t *trace) {
			t.each(5, func(n byte) {
				t.wait(time.Second).send(poll(7, conditional, func(x *verdict.Exchange) { x.ETag = fmt.Sprintf("%q", fmt.Sprint(n+2)) }))
			})
		}},
		"send an ETag once, and then none": {"conditional-requests", true, func(t *trace) {
			t.send(poll(7)).wait(time.Second).send(poll(7, tagged, unchanged))
			t.each(5, func(byte) { t.wait(time.Second).send(poll(7)) })
		}},
		"never stop": {"stop-at-end", false, func(t *trace) {
			t.send(poll(7)).wait(time.Second).send(poll(7, final, tagged))
			t.each(4, func(byte) { t.wait(time.Second).send(poll(7, final, tagged)) })
		}},
		"never stop, with a new connection each": {"stop-at-end", false, func(t *trace) {
			t.send(poll(7, alone, by(1, "k1"))).wait(time.Second).send(poll(7, final, tagged, alone, by(2, "k1")))
			t.each(4, func(n byte) { t.wait(time.Second).send(poll(7, final, tagged, alone, by(uint64(3+n), "k1"))) })
		}},
		"read a list in a loop": {"list-polling", false, func(t *trace) {
			t.send(submit(7)).deliver(7).each(6, func(byte) { t.wait(300 * time.Millisecond).send(list(7)) })
		}},
		"come sooner than a refusal said, over a new connection": {"backoff", true, func(t *trace) {
			t.send(poll(7, unavailable, by(1, "k1"))).wait(time.Second).send(poll(7, by(2, "k1")))
		}},
	} {
		judgedBoth(t, name, c.does, func(v map[string]verdict.Result) {
			if r, ok := v[c.rule]; ok && (c.any || len(v) == len(verdict.IDs())) {
				require.Contains(t, []verdict.Status{verdict.Warn, verdict.Fail}, r.Status, "%s: %+v", name, r)
			}
		})
	}
}
