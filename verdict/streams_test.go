package verdict_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// cut ends a stream by a fault.
func cut(x verdict.Exchange) verdict.Exchange {
	x.Fault, x.Stream.Cut = &fault.Effect{CutAfter: new(1)}, true
	return x
}

// of sets the query and the API key of a stream.
func of(x verdict.Exchange, query, key string) verdict.Exchange {
	x.Query, x.KeyID = query, key
	return x
}

func late(x verdict.Exchange, n int) verdict.Exchange {
	x.Stream.Late = n
	return x
}

func TestResumedStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status verdict.Status
		does   func(*trace)
	}{
		"with the newest id":        {verdict.OK, func(t *trace) { t.send(cut(stream("", "1", "2"))).wait(time.Second).send(stream("2")) }},
		"with the second newest id": {verdict.Fail, func(t *trace) { t.send(cut(stream("", "1", "2"))).wait(time.Second).send(stream("1")) }},
		"with an id of an earlier connection": {verdict.Fail, func(t *trace) {
			t.send(cut(stream("", "1", "2"))).wait(time.Second).send(cut(stream("2", "3", "4"))).wait(time.Second).send(stream("2"))
		}},
		"with its own id after an empty connection": {verdict.OK, func(t *trace) {
			t.send(cut(stream("2"))).wait(time.Second).send(stream("2"))
		}},
		"without an id": {verdict.Fail, func(t *trace) { t.send(cut(stream("", "1", "2"))).wait(time.Second).send(stream("")) }},
		"without an id, after an empty one": {verdict.NotTested, func(t *trace) {
			t.send(cut(stream("", "1", ""))).wait(time.Second).send(stream(""))
		}},
		"with the id after an empty one": {verdict.OK, func(t *trace) {
			t.send(cut(stream("", "1", "", "2"))).wait(time.Second).send(stream("2"))
		}},
		"with the id before the late events": {verdict.OK, func(t *trace) {
			t.send(late(cut(stream("", "1", "2", "3")), 2)).wait(time.Second).send(stream("1"))
		}},
		"with the id of a late event": {verdict.OK, func(t *trace) {
			t.send(late(cut(stream("", "1", "2", "3")), 2)).wait(time.Second).send(stream("2"))
		}},
		"without an id, though all events are late": {verdict.Fail, func(t *trace) {
			t.send(late(cut(stream("", "1", "2")), 2)).wait(time.Second).send(stream(""))
		}},
		"with an old id, though some events are late": {verdict.Fail, func(t *trace) {
			t.send(cut(stream("", "1", "2"))).wait(time.Second).send(late(cut(stream("2", "3", "4")), 1)).wait(time.Second).send(stream("1"))
		}},
		"each with its own id": {verdict.OK, func(t *trace) {
			t.send(of(cut(stream("", "1", "2")), "type=a", "k1")).send(of(cut(stream("", "7", "8")), "type=b", "k1")).wait(time.Second)
			t.send(of(stream("2"), "type=a", "k1")).send(of(stream("8"), "type=b", "k1"))
		}},
		"each with the other's id": {verdict.NotTested, func(t *trace) {
			t.send(of(cut(stream("", "1", "2")), "", "k1")).send(of(cut(stream("", "7", "8")), "", "k2")).wait(time.Second)
			t.send(of(stream("8"), "", "k1")).send(of(stream("2"), "", "k2"))
		}},
		"with a cursor beside other parameters": {verdict.OK, func(t *trace) {
			t.send(of(cut(stream("", "1", "2")), "type=a", "k1")).wait(time.Second).send(of(stream(""), "type=a&cursor=2", "k1"))
		}},
	} {
		for _, standards := range []bool{false, true} {
			trace := newTrace()
			trace.Standards, trace.Session.Rules = standards, []string{"stream-resume"}
			c.does(trace)
			r := trace.judge().Results[0]
			require.Equal(t, c.status, r.Status, "%s: %+v", name, r)
		}
	}
}
