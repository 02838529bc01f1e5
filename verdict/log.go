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

// Log stores the exchanges of a session compactly: it stores equal exchanges and texts once. It is not safe for concurrent use.
type Log struct {
	kept   []*kept
	shared map[uint64]*Exchange // distinct exchanges by hash, without the fields that kept stores
	texts  map[string]string
	bytes  int // approximate size of the Log
}

// kept is the stored form of an Exchange: the fields that differ each time, and the shared rest.
type kept struct {
	Start             time.Time
	took              time.Duration // time from start to end
	ETag, IfNoneMatch string
	Connection        uint64
	Reused            bool
	Unsigned          bool // a delivery without a valid signature
	Stream            *Part
	*Exchange
}

// Sizes of the parts of a Log in bytes, including entries of maps and slices.
const (
	keptSize   = 200
	sharedSize = 400 // an Exchange without its JSON
	textSize   = 60  // a text without its content
	shownSize  = 16  // a job in a list
	partSize   = 100
)

// Add adds an exchange and returns the number of bytes by which the Log grew. It takes ownership of the exchange.
func (l *Log) Add(x *Exchange) (bytes int) {
	before := l.bytes
	if l.texts == nil {
		l.shared, l.texts = map[uint64]*Exchange{}, map[string]string{}
	}
	k := &kept{
		Start: x.Start, took: max(0, x.End.Sub(x.Start)), ETag: l.text(x.ETag), IfNoneMatch: l.text(x.IfNoneMatch),
		Connection: x.Connection, Reused: x.Reused, Stream: x.Stream,
	}
	for _, jobs := range [][]string{x.Final, x.Shown, x.MaybeFinal} {
		for i := range jobs {
			jobs[i] = l.text(jobs[i])
		}
	}
	for _, text := range []*string{&x.Job, &x.Made, &x.Created, &x.Unreached, &x.Location} {
		*text = l.text(*text)
	}
	x.Start, x.End, x.ETag, x.IfNoneMatch, x.Connection, x.Reused, x.Stream = time.Time{}, time.Time{}, "", "", 0, false, nil
	k.Exchange = l.share(x)
	l.kept = append(l.kept, k)
	l.bytes += keptSize
	if k.Stream != nil {
		l.bytes += partSize + len(k.Stream.Half)
		for _, id := range k.Stream.IDs {
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

// FoundKey marks the exchanges with a key in their URL and removes the key. without returns the URL without the key and reports whether it
// contained the key. Copies of the Log do not change.
func (l *Log) FoundKey(without func(path, query string) (shownPath, shownQuery string, found bool)) {
	var changed []*kept
	for i, k := range l.kept {
		path, query, found := without(k.Path, k.Query)
		if !found || k.KeyInURL {
			continue
		}
		if changed == nil {
			changed = slices.Clone(l.kept)
		}
		other, x := *k, *k.Exchange
		x.Path, x.Query, x.KeyInURL = path, query, true
		other.Exchange, changed[i] = &x, &other
	}
	if changed != nil {
		l.kept = changed
	}
}

// text returns the stored string that equals text. If there is none, it stores text.
func (l *Log) text(text string) string {
	if one, ok := l.texts[text]; ok {
		return one
	}
	l.texts[text] = text
	l.bytes += textSize + len(text)
	return text
}

var seed = maphash.MakeSeed()

// share returns the stored exchange that equals x, or stores x. The length of the JSON approximates the length of the texts. In a hash
// collision, x replaces the stored exchange.
func (l *Log) share(x *Exchange) *Exchange {
	text, err := json.Marshal(x)
	if err != nil { // exchanges have no values that cannot be encoded
		return x
	}
	hash := maphash.Bytes(seed, text)
	if same := l.shared[hash]; same != nil && reflect.DeepEqual(same, x) {
		return same
	}
	l.shared[hash] = x
	l.bytes += sharedSize + len(text)
	return x
}

// until returns a copy of x with another end.
func (x *kept) until(end time.Time) *kept {
	other := *x
	other.took = max(0, end.Sub(x.Start))
	return &other
}

// as returns a copy of x with another role.
func (x *kept) as(role Role) *kept {
	other, shared := *x, *x.Exchange
	shared.Role, other.Exchange = role, &shared
	return &other
}

// End returns when the response was complete, or the stream ended.
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

// attempted returns a delivery attempt as an exchange, with its fault.
func (r *record) attempted(a *Attempt) *exchange {
	return &exchange{place: a.place, kept: &kept{Start: a.At, took: a.Took, Unsigned: a.Unsigned, Exchange: &Exchange{
		Method: http.MethodPost, Role: Delivery, Operation: fault.Delivery, Delivery: a.DeliveryID, Number: a.Number, Event: a.Event,
		Status: a.Status, Fault: r.disturbed[attempt{a.DeliveryID, a.Number}].effect,
	}}}
}
