package verdict

import (
	"encoding/json"
	"hash/maphash"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

// Log stores the exchanges of a session compactly: it stores equal requests, responses and texts once. It is not safe for concurrent use.
type Log struct {
	kept      []*kept
	requests  map[uint64]*request
	responses map[uint64]*response
	texts     map[string]string
	bytes     int // approximate size of the Log
}

type kept struct {
	Start             time.Time
	took              time.Duration
	ETag, IfNoneMatch string
	Connection        uint64
	Reused            bool
	Stream            *Part
	*request
	*response
}

// request is the part of an exchange that is stored once for all equal requests.
type request struct {
	Method, Host, Path, Query, Operation                       string
	Role                                                       Role
	Key, Body, Correlation, Trace, Prefer, ContentType, Accept string
	LastEventID, KeyID, Delivery, Event, Agent                 string
	Number                                                     int
	Repeatable, KeyInURL, Unsigned, Closes, Receiver           bool
}

// response is the part of an exchange that is stored once for all equal responses.
type response struct {
	Status            int
	RetryAfter        *int
	Code, Job, Made   string
	Created           string
	Location          string
	Unreached         string
	Final             []string
	Shown, MaybeFinal []string
	Fault             *fault.Effect
	Expired, HungUp   bool
	More              bool
}

// Approximate sizes in bytes, including the entries in maps and slices, but without the lengths of texts.
const (
	keptSize     = 200
	requestSize  = 50 // in addition to the length of the request's JSON
	responseSize = 80 // in addition to the length of the response's JSON
	textSize     = 60
	shownSize    = 16 // size of a job in a list
	partSize     = 100
)

// Add adds an exchange and returns the number of bytes by which the Log grew. It takes ownership of the exchange.
func (l *Log) Add(x *Exchange) (bytes int) {
	before := l.bytes
	if l.texts == nil {
		l.requests, l.responses, l.texts = map[uint64]*request{}, map[uint64]*response{}, map[string]string{}
	}
	k := &kept{
		Start: x.Start, took: max(0, x.End.Sub(x.Start)), ETag: l.text(x.ETag), IfNoneMatch: l.text(x.IfNoneMatch),
		Connection: x.Connection, Reused: x.Reused, Stream: x.Stream,
		request: shared(l, l.requests, requestSize, &request{
			Method: x.Method, Host: x.Host, Path: x.Path, Query: x.Query, Operation: x.Operation, Role: x.Role, Repeatable: x.Repeatable,
			Key: x.Key, Body: x.Body, Correlation: x.Correlation, Trace: x.Trace, Prefer: x.Prefer, ContentType: x.ContentType,
			Accept: x.Accept, LastEventID: x.LastEventID, KeyID: x.KeyID, KeyInURL: x.KeyInURL, Agent: x.Agent, Closes: x.Closes,
			Receiver: x.Receiver,
			Delivery: x.Delivery, Number: x.Number, Event: x.Event,
		}),
	}
	for _, jobs := range [][]string{x.Final, x.Shown, x.MaybeFinal} {
		for i := range jobs {
			jobs[i] = l.text(jobs[i])
		}
	}
	k.response = shared(l, l.responses, responseSize, &response{
		Status: x.Status, Code: x.Code, RetryAfter: x.RetryAfter, Job: l.text(x.Job), Made: l.text(x.Made), Final: x.Final, Shown: x.Shown,
		Created: l.text(x.Created), Unreached: l.text(x.Unreached), Location: l.text(x.Location),
		MaybeFinal: x.MaybeFinal, More: x.More, Fault: x.Fault, Expired: x.Expired, HungUp: x.HungUp,
	})
	l.kept = append(l.kept, k)
	l.bytes += keptSize
	if x.Stream != nil {
		l.bytes += partSize + len(x.Stream.Half)
		for _, id := range x.Stream.IDs {
			l.bytes += shownSize + len(id)
		}
	}
	return l.bytes - before
}

// Len returns the number of exchanges.
func (l *Log) Len() int {
	if l == nil {
		return 0
	}
	return len(l.kept)
}

// Copy returns a Log with the exchanges so far. The copy can be judged while the original grows.
func (l *Log) Copy() *Log { return &Log{kept: l.kept[:len(l.kept):len(l.kept)]} }

// RemoveKeys removes API keys from the URLs of exchanges, and sets KeyInURL of these exchanges. `removeKey` removes the key from a URL, and
// reports whether it found one. Copies of the Log do not change.
func (l *Log) RemoveKeys(removeKey func(path, query string) (shownPath, shownQuery string, found bool)) {
	var changed []*kept
	for i, k := range l.kept {
		path, query, found := removeKey(k.Path, k.Query)
		if !found || k.KeyInURL {
			continue
		}
		if changed == nil {
			changed = slices.Clone(l.kept)
		}
		other, r := *k, *k.request
		r.Path, r.Query, r.KeyInURL = path, query, true
		other.request, changed[i] = &r, &other
	}
	if changed != nil {
		l.kept = changed
	}
}

func (l *Log) text(text string) string {
	if one, ok := l.texts[text]; ok {
		return one
	}
	l.texts[text] = text
	l.bytes += textSize + len(text)
	return text
}

var seed = maphash.MakeSeed()

// shared returns the stored value that equals v, or stores v. The size of v is estimated by the length of its JSON. In a hash collision,
// v replaces the stored value.
func shared[T any](l *Log, known map[uint64]*T, size int, v *T) *T {
	text, err := json.Marshal(v)
	if err != nil { // impossible: all values of an exchange can be encoded
		return v
	}
	hash := maphash.Bytes(seed, text)
	if same := known[hash]; same != nil && reflect.DeepEqual(same, v) {
		return same
	}
	known[hash] = v
	l.bytes += size + len(text)
	return v
}

func (x *kept) until(end time.Time) *kept {
	other := *x
	other.took = max(0, end.Sub(x.Start))
	return &other
}

func (x *kept) as(role Role) *kept {
	other, r := *x, *x.request
	r.Role, other.request = role, &r
	return &other
}

// End returns the time at which the response was complete, or the stream ended.
func (x *kept) End() time.Time { return x.Start.Add(x.took) }

// Arrived reports whether the client received the whole response.
func (x *kept) Arrived() bool {
	return !x.HungUp && (x.Stream != nil || x.Fault == nil || x.Fault.Close == "")
}

// Disturbed reports whether a fault changed what the client saw.
func (x *kept) Disturbed() bool { return x.Fault != nil }

// extra reports whether a fault sent x in addition to the attempts of the service.
func (x *kept) extra() bool {
	return x.Fault != nil && (x.Fault.Tamper != "" || x.Fault.Repeat > 0)
}

func (r *record) attempted(a *Attempt) *exchange {
	return &exchange{place: a.place, kept: &kept{
		Start: a.At, took: a.Took,
		request: &request{
			Method: http.MethodPost, Role: Delivery, Operation: fault.Delivery, Delivery: a.DeliveryID, Number: a.Number,
			Event: a.Event, Unsigned: a.Unsigned,
		},
		response: &response{Status: a.Status, Fault: r.disturbed[attempt{a.DeliveryID, a.Number}].effect},
	}}
}
