package verdict

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// feed identifies an event stream that a client may follow over several connections.
type feed struct{ path, query, keyID string }

func feedOf(x *exchange) feed {
	query := slices.DeleteFunc(strings.Split(x.Query, "&"), func(part string) bool { return strings.HasPrefix(part, cursor) })
	return feed{x.Path, strings.Join(query, "&"), x.KeyID}
}

// cursor is the query parameter that can replace Last-Event-ID.
const cursor = "cursor="

// joinStreamRecords drops the record of a stream's start if there is a record of the stream's end. Without a record of the end, the stream
// is still open, or the recorder was killed. Such a stream counts as open until the client opens the same feed again.
func (r *record) joinStreamRecords() {
	type stream struct {
		start      time.Time
		connection uint64
		path       string
	}
	of := func(x *exchange) stream { return stream{x.Start, x.Connection, x.Path} }
	ended := map[stream]bool{}
	r.each(func(x *exchange) {
		if x.Stream != nil && !x.Stream.Open {
			ended[of(x)] = true
		}
	})
	before := len(r.exchanges)
	r.exchanges = slices.DeleteFunc(r.exchanges, func(x exchange) bool { return x.Stream != nil && x.Stream.Open && ended[of(&x)] })
	r.Session.Recorded -= before - len(r.exchanges)
	last := r.Now
	if r.Session.EndedAt != nil {
		last = time.Time(*r.Session.EndedAt)
	}
	began := map[feed]time.Time{} // start of the next stream of each feed
	for i := range slices.Backward(r.exchanges) {
		x := &r.exchanges[i]
		if x.Stream == nil {
			continue
		}
		over, ok := began[feedOf(x)]
		began[feedOf(x)] = x.Start
		if !ok {
			over = last
		}
		if x.Stream.Open {
			x.kept = x.until(over)
		}
	}
}

// mayHaveShown reports whether the client may have seen the job's end in a response with unrecorded content.
func (r *record) mayHaveShown(id string, since, until time.Time) bool {
	return r.open[""].overlap(since, until) || r.open[id].overlap(since, until)
}

// resumptions returns a function for streams that a fault ended or silenced. The function returns the stream with which the client
// continued. If several streams of a feed are open at once, it returns nil, because any of these streams may be the continuation.
func (r *record) resumptions() (resumption func(x *exchange) *exchange) {
	streams := indexed(r, func(x *exchange, add func(feed)) {
		if x.Stream != nil && x.Method == http.MethodGet {
			add(feedOf(x))
		}
	})
	times := map[feed]spans{}
	r.each(func(x *exchange) {
		if x.Stream != nil {
			times[feedOf(x)] = append(times[feedOf(x)], span{x.Start, x.End()})
		}
	})
	sortSpans(times)
	return func(x *exchange) *exchange {
		if x.Stream == nil || !x.Stream.Cut || x.Method != http.MethodGet {
			return nil
		}
		y, t := streams[feedOf(x)].next(x), times[feedOf(x)]
		if y == nil || t.overlap(x.Start, x.Start) || t.begin(x.Start, y.Start) || t.begin(y.Start, y.End()) {
			return nil
		}
		return y
	}
}

// newest returns the last event id of the stream x. If x has no events, newest returns the Last-Event-ID that the client sent. The
// client may not have got the last events. So `may` lists all ids from which it may resume.
func newest(x *exchange) (id string, may []string) {
	all := append([]string{x.LastEventID}, x.Stream.IDs...)
	last := len(all) - 1
	return all[last], all[last-min(x.Stream.Late, last):]
}

// resumed checks that the client resumes a cut stream after the last event, and waits for the retry time.
func resumed(r *record, f *finding) {
	resumption := r.resumptions()
	ids := map[feed]map[string]bool{}
	r.each(func(x *exchange) {
		if x.Stream == nil {
			return
		}
		at := feedOf(x)
		if ids[at] == nil {
			ids[at] = map[string]bool{}
		}
		for _, id := range x.Stream.IDs {
			ids[at][id] = true
		}
		y := resumption(x)
		want, may := newest(x)
		if y == nil || x.Stream.Events == 0 && x.LastEventID == "" || want == "" { // nothing to resume from
			return
		}
		retry := time.Duration(x.Stream.Retry) * time.Millisecond
		waited, byCursor := y.Start.Sub(x.End()), strings.Contains("&"+y.Query, "&"+cursor)
		expected := "Send Last-Event-ID: " + want + ", the id of the last event received, so that no event is missed."
		switch {
		case y.LastEventID == "" && byCursor:
		case y.LastEventID == "" && slices.Contains(x.Stream.IDs, "") && slices.Contains(may, ""):
			return // the client may have received an event with an empty id, which clears its Last-Event-ID
		case y.LastEventID == "":
			f.fail(x, y, "The client reopened the stream without Last-Event-ID; the last id that it received was "+want+".", expected)
			return
		case slices.Contains(may, y.LastEventID):
		case ids[at][y.LastEventID]:
			f.fail(x, y, "The client resumed the stream with Last-Event-ID: "+y.LastEventID+"; the last id that it received was "+want+".", expected)
			return
		default:
			return // Last-Event-ID names an event that was cut in half or is no longer recorded
		}
		switch {
		case x.Job != "" && showsFinal(x, x.Job), x.Fault != nil && x.Fault.StallAfter != nil:
			return // no pause is required after the end of the job, or if the client ended a stalled stream
		case waited < max(retry-Tolerance, Tolerance):
			f.fail(x, y, "The client reopened the stream "+after(waited)+fmt.Sprintf("; its `retry` said %d ms.", x.Stream.Retry),
				fmt.Sprintf("Wait %d ms before you reopen the stream.", max(x.Stream.Retry, int(Tolerance/time.Millisecond))))
		default:
			f.pass(x, y, either(byCursor, "The client resumed the stream with a cursor, ",
				"The client resumed the stream with Last-Event-ID: "+y.LastEventID+", ")+after(waited)+".")
		}
	})
}

// halfEvents checks that the client does not use the id of an event that was cut in half.
func halfEvents(r *record, f *finding) {
	type event struct {
		feed
		id string
	}
	resumption := r.resumptions()
	whole := map[event]bool{}
	r.each(func(x *exchange) {
		if x.Stream == nil {
			return
		}
		for _, id := range x.Stream.IDs {
			whole[event{feedOf(x), id}] = true
		}
		half := x.Stream.Half
		y := resumption(x)
		if y == nil || half == "" || whole[event{feedOf(x), half}] {
			return
		}
		f.judge(y.LastEventID != half, x, y, either(y.LastEventID == "", "The client reopened the stream without Last-Event-ID.",
			"The client resumed the stream with Last-Event-ID: "+y.LastEventID+"."),
			fmt.Sprintf("Discard event %s, which is incomplete, and resume after the event before it.", half))
	})
}
