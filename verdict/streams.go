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
func (r *Record) settle() {
	type stream struct {
		start      time.Time
		connection uint64
		path       string
	}
	of := func(x *Exchange) stream { return stream{x.Start, x.Connection, x.Path} }
	ended := map[stream]bool{}
	for i := range r.Exchanges {
		if x := &r.Exchanges[i]; x.Stream != nil && !x.Stream.Open {
			ended[of(x)] = true
		}
	}
	before := len(r.Exchanges)
	r.Exchanges = slices.DeleteFunc(r.Exchanges, func(x Exchange) bool { return x.Stream != nil && x.Stream.Open && ended[of(&x)] })
	r.Session.Recorded -= before - len(r.Exchanges)
	for i := range r.Exchanges {
		x := &r.Exchanges[i]
		if x.Stream == nil || !x.Stream.Open {
			continue
		}
		x.End = r.Now
		if r.Session.EndedAt != nil {
			x.End = time.Time(*r.Session.EndedAt)
		}
		for _, y := range r.Exchanges[i+1:] {
			if y.Stream != nil && y.Path == x.Path {
				x.End = y.Start
				break
			}
		}
	}
}

// untold reports whether a stream of which the end is not known may have told the client of a job between two moments.
func (r *Record) untold(id string, since, until time.Time) bool {
	return slices.ContainsFunc(r.Exchanges, func(x Exchange) bool {
		return x.Stream != nil && x.Stream.Open && (x.Job == "" || x.Job == id) && x.End.After(since) && x.Start.Before(until)
	})
}

// resumption finds the stream that goes on where one ended by a fault. It is nil if that cannot be told: others may have been open
// beside them.
func (r *Record) resumption(x *Exchange, later []Exchange) *Exchange {
	if x.Stream == nil || !x.Stream.Cut || x.Method != http.MethodGet {
		return nil
	}
	y := next(x, later, func(y *Exchange) bool { return y.Method == x.Method && y.Path == x.Path && y.Stream != nil })
	if y == nil || r.several(x, y) {
		return nil
	}
	return y
}

// resumed: a stream that ended is resumed where it ended, and not sooner than told.
func resumed(r *Record, f *finding) {
	ids := map[string]map[string]bool{} // that were sent, of each stream
	r.each(func(x *Exchange, later []Exchange) {
		if x.Stream == nil {
			return
		}
		if ids[x.Path] == nil {
			ids[x.Path] = map[string]bool{}
		}
		for _, id := range x.Stream.IDs {
			ids[x.Path][id] = true
		}
		y := r.resumption(x, later)
		if y == nil || x.Stream.Events == 0 && x.LastEventID == "" || len(ids[x.Path]) == 0 { // nothing to resume from
			return
		}
		told := time.Duration(x.Stream.Retry) * time.Millisecond
		waited, byCursor := y.Start.Sub(x.End), strings.Contains("&"+y.Query, "&cursor=")
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
func halved(r *Record, f *finding) {
	whole := map[string]bool{}
	r.each(func(x *Exchange, later []Exchange) {
		if x.Stream == nil {
			return
		}
		for _, id := range x.Stream.IDs {
			whole[x.Path+id] = true
		}
		half := x.Stream.Half
		y := r.resumption(x, later)
		if y == nil || half == "" || whole[x.Path+half] {
			return
		}
		f.judge(y.LastEventID != half, x, y, fmt.Sprintf("Last-Event-ID: %q.", y.LastEventID),
			fmt.Sprintf("To discard event %q, of which half came, and to resume after the one before.", half))
	})
}

// several reports whether another stream of the same events was open beside one of two: which of them is resumed cannot be told.
func (r *Record) several(x, y *Exchange) bool {
	return slices.ContainsFunc(r.Exchanges, func(z Exchange) bool {
		return z.Stream != nil && z.Path == x.Path && !z.Start.Equal(x.Start) && !z.Start.Equal(y.Start) &&
			z.Start.Before(y.End) && z.End.After(x.Start)
	})
}
