package ratelimit

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

// token is one request, in the unit in which buckets are counted: each
// microsecond adds perMinute of them, so nothing is ever rounded.
const token = int64(time.Minute / time.Microsecond)

const day = 24 * time.Hour

// Limits and chunks of the rate limit.
const (
	maxPerMinute = 100_000_000 // what counts exactly in a Lua number
	maxChunk     = 100
	// keepHeld is how long unused tokens are kept. Meanwhile the shared bucket refills as if they were used: so much time's worth
	// of requests, at most, may pass all processes above the limit.
	keepHeld = time.Second
	// lateReturn is the age at which tokens are only taken off the day's count: the shared bucket has refilled.
	lateReturn = 3 * keepHeld
	// trustQuota is how long a used-up day's quota is believed: another process may give some back.
	trustQuota = time.Second
)

// rates are the limits of every client.
type rates struct {
	perMinute int
	perDay    int // 0: no limit
	chunk     int // tokens taken from the shared bucket at a time
	noMinute  bool
}

func newRates(perMinute, perDay int) rates {
	r := rates{perMinute: perMinute, perDay: max(0, perDay), noMinute: perMinute <= 0}
	if r.noMinute || perMinute > maxPerMinute {
		r.perMinute = maxPerMinute
	}
	r.chunk = min(r.perMinute/60, maxChunk)
	if r.perDay > 0 {
		r.chunk = min(r.chunk, r.perDay/100)
	}
	r.chunk = max(1, r.chunk)
	return r
}

// level is a bucket's content at a time.
type level struct {
	units int64
	at    time.Time
}

// refill brings the level to now. It keeps the fraction of a microsecond.
func (l *level) refill(now time.Time, r rates) {
	us := now.Sub(l.at).Microseconds()
	switch {
	case us <= 0:
	case us >= token:
		l.units, l.at = r.full(), now
	default:
		l.units = min(r.full(), l.units+us*int64(r.perMinute))
		l.at = l.at.Add(time.Duration(us) * time.Microsecond)
	}
}

func (r rates) full() int64 { return int64(r.perMinute) * token }

// until is the time in which units come in, rounded up.
func (r rates) until(units int64) time.Duration {
	n := int64(r.perMinute)
	return time.Duration((max(0, units)+n-1)/n) * time.Microsecond
}

// verdict is what a bucket says to a request.
type verdict int

const (
	passed    verdict = iota
	tooFast           // the minute's allowance is used up
	quotaUsed         // the day's
	mustAsk           // only the shared bucket knows
)

// bucket is this process's half of one client's rate limit. It reads no clock; time does not go back.
type bucket struct {
	rates  rates
	own    level // what this process would allow by itself: a bound even if Redis allows more
	shared level // what the shared bucket had at the last answer, refilled since: the most that it can have now
	asked  bool

	held      int // tokens taken from the shared bucket and not used yet
	heldSince time.Time

	day           int64
	used          int // the day's count of all processes at the last answer, held tokens included
	usedAt        time.Time
	owed          int // requests that passed since without a token
	returned      int // tokens to give back
	returnedSince time.Time
}

func newBucket(r rates, now time.Time) *bucket {
	return &bucket{rates: r, own: level{r.full(), now}, day: dayOf(now)}
}

func dayOf(now time.Time) int64 { return now.Unix() / int64(day/time.Second) }

// advance brings everything to now.
func (b *bucket) advance(now time.Time) {
	b.own.refill(now, b.rates)
	b.shared.refill(now, b.rates)
	if d := dayOf(now); d > b.day {
		// What belongs to the old day is not reported.
		b.day, b.used, b.owed, b.returned, b.held, b.usedAt = d, 0, 0, 0, 0, time.Time{}
	}
	if b.held > 0 && now.Sub(b.heldSince) >= keepHeld {
		b.putBack()
	}
}

// putBack makes what is held ready to be given back.
func (b *bucket) putBack() {
	if b.held > 0 {
		b.returned += b.held
		b.held, b.returnedSince = 0, b.heldSince
	}
}

// take lets a request pass if it may. alone means without Redis.
func (b *bucket) take(now time.Time, alone bool) verdict {
	b.advance(now)
	switch {
	case b.own.units < token:
		return tooFast
	case b.held > 0:
		b.held--
	case alone:
		if b.rates.perDay > 0 && b.used+b.owed >= b.rates.perDay {
			return quotaUsed
		}
		b.owed++
	case b.rates.perDay > 0 && b.used >= b.rates.perDay && now.Sub(b.usedAt) < trustQuota:
		return quotaUsed
	case b.asked && b.shared.units < token:
		return tooFast
	default:
		return mustAsk
	}
	b.own.units -= token
	return passed
}

// wants reports whether to take more tokens before the last one is used: never with chunks of one.
func (b *bucket) wants() bool {
	quota := b.rates.perDay == 0 || b.used < b.rates.perDay
	return quota && b.held < b.rates.chunk/2 && b.shared.units >= token
}

// report is for the shared bucket: tokens given back, and requests that passed without one.
type report struct {
	returned, owed int
	level          int // by how many tokens the level changes
	day            int64
}

// none is true when there is nothing to report.
func (r report) none() bool { return r.returned == 0 && r.owed == 0 }

// report gives what is to be reported, and forgets it. Requests that have refilled meanwhile do not count for the level.
func (b *bucket) report(now time.Time) report {
	b.advance(now)
	r := report{returned: b.returned, owed: b.owed, day: b.day}
	if now.Sub(b.returnedSince) < lateReturn {
		r.level = r.returned
	}
	r.level -= min(r.owed, int((b.rates.full()-b.own.units+token-1)/token))
	b.returned, b.owed = 0, 0
	return r
}

// takeBack takes back what could not be reported, except returned tokens, which may have arrived.
func (b *bucket) takeBack(r report) {
	if r.day == b.day {
		b.owed += r.owed
	}
}

// answer is what the shared bucket said.
type answer struct {
	taken int
	left  int64 // units
	day   int64
	used  int
}

func (b *bucket) receive(now time.Time, a answer) {
	b.advance(now)
	b.asked = true
	b.shared = level{a.left, now}
	if a.taken > 0 {
		b.held, b.heldSince = b.held+a.taken, now
	}
	if a.day >= b.day {
		b.day, b.used, b.usedAt = a.day, a.used, now
	}
}

// idle reports whether forgetting the bucket changes nothing.
func (b *bucket) idle(now time.Time) bool {
	b.advance(now)
	nothing := b.held == 0 && b.owed == 0 && b.returned == 0
	return nothing && b.own.units == b.rates.full() && (b.rates.perDay == 0 || now.Sub(b.usedAt) > time.Minute)
}

// allowance describes the bucket after a request: the limit that refused it, or the one with less left.
func (b *bucket) allowance(now time.Time, v verdict, alone bool) job.Allowance {
	have := b.own.units
	if b.asked && !alone {
		have = min(have, int64(b.held)*token+b.shared.units)
	}
	left := max(0, b.rates.perDay-b.used-b.owed+b.held)
	var a job.Allowance
	byDay := b.rates.perDay > 0 && int64(left) < have/token
	if v == quotaUsed || (v == passed && byDay) || b.rates.noMinute {
		reset := time.Unix((dayOf(now)+1)*int64(day/time.Second), 0).Sub(now)
		a = job.Allowance{Policy: "day", Limit: b.rates.perDay, Remaining: left, Reset: reset, RetryAfter: reset}
	} else {
		reset := b.rates.until(b.rates.full() - have)
		a = job.Allowance{
			Policy: "minute", Limit: b.rates.perMinute, Remaining: int(have / token), Reset: reset, RetryAfter: b.rates.until(token - have),
		}
	}
	if a.OK = v == passed; a.OK {
		a.RetryAfter = 0
	} else {
		a.Remaining = 0
	}
	return a
}
