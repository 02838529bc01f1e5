package verdict_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func marked(v verdict.Verdict) map[string][]int {
	all := map[string][]int{}
	for e := range v.Journal() {
		for _, rule := range e.Breaks {
			all[rule] = append(all[rule], e.Number)
		}
	}
	return all
}

func TestJournal(t *testing.T) {
	t.Parallel()
	trace := newTrace().send(submit(7)).send(poll(7)).wait(200 * time.Millisecond)
	trace.attempt(verdict.Attempt{JobID: id(7), Number: 2, Event: "job.succeeded", Took: time.Second, Error: "TIMEOUT"})
	trace.sent(fault.Effect{Padding: 9}, 0).sent(fault.Effect{Repeat: 1}, 500).send(poll(8, lost))
	opened := stream("")
	opened.Stream = &verdict.Part{Open: true}
	trace.send(opened)
	closed := trace.Exchanges[len(trace.Exchanges)-1]
	closed.Stream, closed.End = &verdict.Part{Events: 2}, trace.now
	trace.Exchanges = append(trace.Exchanges, closed)

	v := trace.judge()
	lines := slices.Collect(v.Journal())
	require.Len(t, lines, 6)
	for i, e := range lines {
		require.Equal(t, i+1, e.Number)
	}
	require.Equal(t, "POST /v1/jobs", lines[0].Request)
	require.Equal(t, []string{id(7), id(7), id(7)}, []string{lines[0].Job, lines[1].Job, lines[2].Job})
	require.Equal(t, "none: TIMEOUT", lines[2].Answer)
	require.Equal(t, `large delivery {"padding":9}`, lines[2].Fault)
	require.Equal(t, []string{"deliveries-answered", "repeated-delivery"}, append(lines[2].Breaks, lines[3].Breaks...))
	require.Equal(t, []string{}, lines[4].Breaks)
	require.Equal(t, "a stream of 2 events", lines[5].Answer)
}
