package verdict_test

import (
	"testing"
	"time"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

func cut(x verdict.Exchange) verdict.Exchange {
	x.Fault, x.Stream.Cut = &fault.Effect{CutAfter: new(1)}, true
	return x
}

func of(x verdict.Exchange, query, key string) verdict.Exchange {
	x.Query, x.KeyID = query, key
	return x
}

func late(x verdict.Exchange, n int) verdict.Exchange {
	x.Stream.Late = n
	return x
}

// A client resumes a stream with the last event id. It keeps the id and the retry time until the stream sets new values.
func TestResumedStreams(t *testing.T) {
	t.Parallel()
	const ok, fail, not = verdict.OK, verdict.Fail, verdict.NotTested
	slow := cut(stream("", "1"))
	slow.Stream.Retry = 10_000
	first, empty := cut(stream("", "1", "2")), cut(stream("2"))
	then := func(wait time.Duration, all ...verdict.Exchange) func(*trace) {
		return func(t *trace) {
			for _, x := range all {
				t.send(x).wait(wait)
			}
		}
	}
	checkClients(t, "stream-resume", clients{
		"sends the newest id":                  {ok, ok, then(time.Second, first, stream("2"))},
		"sends the second newest id":           {fail, fail, then(time.Second, first, stream("1"))},
		"sends an id of an earlier connection": {fail, fail, then(time.Second, first, cut(stream("2", "3", "4")), stream("2"))},
		"sends no id":                          {fail, fail, then(time.Second, first, stream(""))},
		"sends no id after an empty one":       {not, not, then(time.Second, cut(stream("", "1", "")), stream(""))},
		"sends the id before the late events":  {ok, ok, then(time.Second, late(cut(stream("", "1", "2", "3")), 2), stream("1"))},
		"sends no id, though all are late":     {fail, fail, then(time.Second, late(cut(stream("", "1", "2")), 2), stream(""))},
		"sends an old id, though some are late": {fail, fail,
			then(time.Second, first, late(cut(stream("2", "3", "4")), 1), stream("1"))},
		"resumes two streams": {ok, ok, func(t *trace) {
			t.send(of(first, "type=a", "k1")).send(of(cut(stream("", "7", "8")), "type=b", "k1")).wait(time.Second)
			t.send(of(stream("2"), "type=a", "k1")).send(of(stream("8"), "type=b", "k1"))
		}},
		"swaps the ids of two streams": {not, not, func(t *trace) {
			t.send(of(first, "", "k1")).send(of(cut(stream("", "7", "8")), "", "k2")).wait(time.Second)
			t.send(of(stream("8"), "", "k1")).send(of(stream("2"), "", "k2"))
		}},
		"sends a cursor with other parameters": {ok, ok,
			then(time.Second, of(first, "type=a", "k1"), of(stream(""), "type=a&cursor=2", "k1"))},
		"sends the id again after an empty connection": {ok, ok, then(time.Second, first, empty, stream("2", "3"))},
		"forgets the id after an empty connection":     {fail, fail, then(time.Second, first, empty, stream(""))},
		"waits for the retry time":                     {ok, ok, then(10*time.Second, slow, stream("1"))},
		"waits for less than the retry time":           {fail, fail, then(time.Second, slow, stream("1"))},
		"waits for the retry time after the next cut":  {ok, ok, then(10*time.Second, slow, cut(stream("1", "2")), stream("2"))},
	})
}
