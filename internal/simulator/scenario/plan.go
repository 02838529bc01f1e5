package scenario

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Intent is one request to make, and what the client does about its jobs.
type Intent struct {
	Index       int64         // of the intent, from 1
	N           int64         // its first ticket, from 1; tickets are dense over all intents
	Tickets     int           // how many: items of the batch, or 1 and each copy with a key of its own
	At          time.Duration // intended send time after the start; 0 in a closed loop
	Tenant      int           // from 0
	Work        *Work         // the entry it was drawn from; not to be changed
	Type        string        // Execute, Deferred or EmitEvent
	Kind        string        // "" for EmitEvent and for batches
	Kinds       []string      // of a batch's items, one each; nil for EmitEvent; not to be changed
	Key         string        // idempotency key; those of copies: CopyKey
	Ahead       time.Duration // Deferred: execution_at minus the send time
	Cancel      CancelIntent
	Retries     int  // how often the client asks for another attempt if the job fails
	Copies      int  // how often it is sent besides the first time
	SameKey     bool // with Copies: they are the same job
	AtOnce      bool // with Copies: they are sent at the same time
	AutoRetry   bool
	Callback    string // name of a receiver, "" none
	ParamsBytes int    // 0: no params
	Polled      bool
}

// CancelIntent is when to cancel. The zero value is never.
type CancelIntent struct {
	In    string // the state to wait for; "": the job is not canceled
	After time.Duration
}

// CopyKey is the idempotency key of copy c, from 1 to Copies.
func (i *Intent) CopyKey(c int) string {
	if i.SameKey {
		return i.Key
	}
	return i.Key + "-" + strconv.Itoa(c)
}

// Plan gives the intents of a scenario one after the other. It is for one goroutine and its memory does not grow.
type Plan struct {
	scenario Scenario
	chooser  chooser
	arrivals arrivals
	source   rand.PCG
	random   *rand.Rand // over source
	index    int64      // of the last intent
	tickets  int64      // given out
	keys     keyMaker
}

// Plan starts the plan anew. The scenario must come from Parse or Load; its Seed, Duration, Jobs and Tenants may have
// been changed to other valid values.
func (s *Scenario) Plan() *Plan {
	p := &Plan{scenario: *s, chooser: newChooser(s), arrivals: newArrivals(s)}
	p.keys.seed = s.Seed
	p.random = rand.New(&p.source)
	return p
}

// Next gives the next intent, or false after all Jobs, or when an open loop reached the Duration. A closed loop
// without Jobs does not end by itself.
func (p *Plan) Next() (Intent, bool) {
	if p.scenario.Jobs > 0 && p.index >= p.scenario.Jobs {
		return Intent{}, false
	}
	at, ok := p.arrivals.next()
	if !ok {
		return Intent{}, false
	}
	p.index++
	i := p.draw(p.roll())
	i.At = at
	p.tickets += int64(i.Tickets)
	return i, true
}

// chances are all that is drawn for an intent, each from 0 to below 1, whether it is needed or not: so a changed
// share leaves the rest of the plan as it was.
type chances struct {
	tenant, entry, kind, ahead, cancel, after, retry, duplicate, poll float64
}

func (p *Plan) roll() chances {
	p.source.Seed(p.scenario.Seed, uint64(p.index))
	r := p.random
	return chances{
		tenant: r.Float64(), entry: r.Float64(), kind: r.Float64(), ahead: r.Float64(), cancel: r.Float64(),
		after: r.Float64(), retry: r.Float64(), duplicate: r.Float64(), poll: r.Float64(),
	}
}

func (p *Plan) draw(c chances) Intent {
	e, kind := p.chooser.choose(p.index, c)
	i := Intent{
		Index: p.index, N: p.tickets + 1, Tickets: max(e.Batch, 1),
		Tenant: int(c.tenant * float64(p.scenario.Tenants)),
		Work:   e.Work, Type: e.Type, Kind: kind, Key: p.keys.key(p.index), Ahead: e.Ahead.at(c.ahead),
		AutoRetry: e.AutoRetry, Callback: e.Callback, ParamsBytes: e.ParamsBytes,
		Polled: c.poll < float64(p.scenario.Readers.Poll),
	}
	if e.items != nil {
		from := int(c.kind * stretches)
		i.Kind, i.Kinds = "", slices.Clip(e.items[from:from+e.Batch])
	}
	if e.Cancel != nil && c.cancel < float64(e.Cancel.Share) {
		i.Cancel = CancelIntent{In: e.Cancel.In, After: e.Cancel.After.at(c.after)}
	}
	if e.Retry != nil && c.retry < float64(e.Retry.Share) {
		i.Retries = e.Retry.Max
	}
	if d := e.Duplicate; d != nil && c.duplicate < float64(d.Share) {
		i.Copies, i.SameKey, i.AtOnce = d.Copies, d.Key == SameKey, d.AtOnce
		if !i.SameKey {
			i.Tickets += d.Copies // those of a batch have its key
		}
	}
	return i
}

// at is the duration at a share of the way, from 0 to below 1.
func (r Range) at(share float64) time.Duration {
	return r.Min + time.Duration(share*float64(r.Max-r.Min))
}

// keyMaker makes the idempotency keys of a plan: a number drawn from the seed and the
// intent's index, which differs between seeds, and the index itself, so that no
// two keys of a plan are equal. Keys are cut out of a string of many: a plan allocates
// nothing else.
type keyMaker struct {
	seed   uint64
	source rand.PCG
	block  string
	first  int64 // index of the first key of the block; 0: there is none yet
}

const (
	keyLen    = 16 + 12 // hexadecimal digits of both numbers
	blockKeys = 256
)

// key is that of the intent of the index, from 1. It is cheap if indexes rise.
func (k *keyMaker) key(index int64) string {
	if k.first == 0 || index < k.first || index >= k.first+blockKeys {
		k.fill(index)
	}
	at := int(index-k.first) * keyLen
	return k.block[at : at+keyLen]
}

func (k *keyMaker) fill(first int64) {
	block := make([]byte, 0, blockKeys*keyLen)
	for index := first; index < first+blockKeys; index++ {
		k.source.Seed(k.seed, uint64(index))
		numbers := binary.BigEndian.AppendUint64(make([]byte, 0, 16), k.source.Uint64())
		numbers = binary.BigEndian.AppendUint64(numbers, uint64(index))
		block = hex.AppendEncode(block, numbers[:8])
		block = hex.AppendEncode(block, numbers[10:])
	}
	k.block, k.first = string(block), first
}
