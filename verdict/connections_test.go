package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func from(agent string) func(*verdict.Exchange) { return func(x *verdict.Exchange) { x.Agent = agent } }

func reused(*verdict.Exchange)   {}
func closes(x *verdict.Exchange) { x.Reused, x.Closes = false, true }

func TestProcessesAndConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent string
		gap   time.Duration
		does  func(*verdict.Exchange)
		want  verdict.Status
	}{
		"one interpreter per request":                  {"python-requests/2.32.3", 90 * time.Millisecond, alone, verdict.NotTested},
		"one compiled program per request":             {"Go-http-client/1.1", 8 * time.Millisecond, alone, verdict.NotTested},
		"curl":                                         {"curl/8.5.0", 0, alone, verdict.NotTested},
		"a process without a session":                  {"python-requests/2.32.3", 8 * time.Millisecond, alone, verdict.Warn},
		"a process that closes each connection":        {"Go-http-client/1.1", time.Millisecond, alone, verdict.Warn},
		"a process that asks to close each connection": {"Go-http-client/1.1", 90 * time.Millisecond, closes, verdict.Warn},
		"a library that always closes":                 {"Python-urllib/3.12", 90 * time.Millisecond, closes, verdict.NotTested},
		"a process that keeps connections":             {"Go-http-client/1.1", time.Millisecond, reused, verdict.OK},
	} {
		trace := newTrace()
		for n := range 15 {
			trace.wait(c.gap).send(poll(7, from(c.agent), by(uint64(n+1), "k1"), c.does))
		}
		require.Equal(t, c.want, trace.result("connection-reuse").Status, name)
	}
}

// A client is not blamed for new connections after a fault ended the old one, or for requests to another host.
func TestConnectionsEndedByFaults(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]fault.Effect{
		"half closed": {NextRequest: fault.CloseHalf}, "reset while idle": {NextRequest: fault.CloseBefore, Reset: true},
		"redirect to another host": {Moved: 307, OtherHost: true}, "slow response": {SlowBytes: 4096},
		"response cut in the middle": {Close: fault.CloseMidBody},
	} {
		trace := newTrace()
		trace.each(15, func(n byte) { trace.send(poll(7, by(uint64(n+1), "k1"), alone, with(&e))) })
		require.Equal(t, verdict.OK, trace.result("connection-reuse").Status, name)
	}
}
