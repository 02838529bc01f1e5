package verdict

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// settle pairs the record of a stream's beginning with that of its end. A stream without an end is one that is open, or whose process
// was killed: it may have told the client of anything until the next one began.
func (r *record) settle() {
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
	began := map[string]time.Time{} // by path: when the stream after this one did
	for i := range slices.Backward(r.exchanges) {
		x := &r.exchanges[i]
		if x.Stream == nil {
			continue
		}
		over, ok := began[x.Path]
		began[x.Path] = x.Start
		if !ok {
			over = last
		}
		if x.Stream.Open {
			x.kept = x.until(over)
		}
	}
}

// untold reports whether a stream of which the end is not known may have told the client of a job between two moments.
func (r *record) untold(id string, since, until time.Time) bool {
	return r.open[""].overlap(since, until) || r.open[id].overlap(since, until)
}

// resumptions gives what finds the stream that goes on where one ended by a fault: nil if that cannot be told, as others may have been
// open beside them.
func (r *record) resumptions() (resumption func(x *exchange) *exchange) {
	streams := indexed(r, func(x *exchange, add func(string)) {
		if x.Stream != nil && x.Method == http.MethodGet {
			add(x.Path)
		}
	})
	times := map[string]spans{}
	r.each(func(x *exchange) {
		if x.Stream != nil {
			times[x.Path] = append(times[x.Path], span{x.Start, x.End()})
		}
	})
	sortSpans(times)
	return func(x *exchange) *exchange {
		if x.Stream == nil || !x.Stream.Cut || x.Method != http.MethodGet {
			return nil
		}
		y, t := streams[x.Path].next(x), times[x.Path]
		if y == nil || t.overlap(x.Start, x.Start) || t.begin(x.Start, y.Start) || t.begin(y.Start, y.End()) {
			return nil
		}
		return y
	}
}

// resumed: a stream that ended is resumed where it ended, and not sooner than told.
func resumed(r *record, f *finding) {
	resumption := r.resumptions()
	ids := map[string]map[string]bool{} // that were sent, of each stream
	r.each(func(x *exchange) {
		if x.Stream == nil {
			return
		}
		if ids[x.Path] == nil {
			ids[x.Path] = map[string]bool{}
		}
		for _, id := range x.Stream.IDs {
			ids[x.Path][id] = true
		}
		y := resumption(x)
		if y == nil || x.Stream.Events == 0 && x.LastEventID == "" || len(ids[x.Path]) == 0 { // nothing to resume from
			return
		}
		told := time.Duration(x.Stream.Retry) * time.Millisecond
		waited, byCursor := y.Start.Sub(x.End()), strings.Contains("&"+y.Query, "&cursor=")
		switch {
		case y.LastEventID != "" && y.LastEventID != x.LastEventID && !ids[x.Path][y.LastEventID]:
			return // of an event that came to half, or whose record is lost with its process
		case y.LastEventID == "" && !byCursor:
			f.fail(x, y, fmt.Sprintf("Last-Event-ID: %q.", y.LastEventID),
				"Last-Event-ID: the id of the last event that came, so that none is missed.")
		case x.Job != "" && shows(x, x.Job), x.Fault != nil && x.Fault.StallAfter != nil:
			return // it asks whether that was all, or the silence was a pause of its own
		case waited < max(told-Tolerance, Tolerance):
			f.fail(x, y, "The stream was opened again "+after(waited)+".",
				fmt.Sprintf("A pause first, of %d ms at least: its `retry`.", x.Stream.Retry))
		default:
			f.hold(x, y, either(byCursor, "A cursor, ", "Last-Event-ID: "+y.LastEventID+", ")+after(waited)+".")
		}
	})
}

// halved: an event that came to half is none, and comes again.
func halved(r *record, f *finding) {
	resumption := r.resumptions()
	whole := map[string]bool{}
	r.each(func(x *exchange) {
		if x.Stream == nil {
			return
		}
		for _, id := range x.Stream.IDs {
			whole[x.Path+id] = true
		}
		half := x.Stream.Half
		y := resumption(x)
		if y == nil || half == "" || whole[x.Path+half] {
			return
		}
		f.judge(y.LastEventID != half, x, y, fmt.Sprintf("Last-Event-ID: %q.", y.LastEventID),
			fmt.Sprintf("To discard event %q, of which half came, and to resume after the one before.", half))
	})
}
