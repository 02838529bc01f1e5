package ratelimit

import (
	"time"

	"github.com/forgerun/forgerun/job"
)

const day = 24 * time.Hour

// Limits of the rate limiter. A chunk is the number of tokens that a process takes with one request to Redis.
const (
	maxPerMinute = 100_000_000
	usualChunk   = 100
	// `trust` limits how long a process believes that Redis has no token left. The limit is short, because another process may return tokens.
	trust = 200 * time.Millisecond
	// After the day's quota was used up, a process asks again only after trustQuota.
	trustQuota = time.Second
)

type rates struct {
	perMinute int
	perDay    int // 0: no limit
	chunk     int // tokens that a process usually takes from Redis at a time
	maxChunk  int // maximum chunk; a busy process takes as many tokens as it uses in half a second
	noMinute  bool
}

func newRates(perMinute, perDay int) rates {
	r := rates{perMinute: perMinute, perDay: max(0, perDay), noMinute: perMinute <= 0}
	if r.noMinute || perMinute > maxPerMinute {
		r.perMinute = maxPerMinute
	}
	r.maxChunk = r.perMinute / 60
	if r.perDay > 0 {
		r.maxChunk = min(r.maxChunk, r.perDay/100)
	}
	r.maxChunk = max(1, r.maxChunk)
	r.chunk = min(r.maxChunk, usualChunk)
	return r
}

type verdict int

const (
	passed verdict = iota
	tooFast
	quotaUsed
	mustAsk // the bucket cannot decide without asking Redis
)

// chunk holds tokens from one response of Redis. Each token is for one request.
type chunk struct {
	n     int
	slot  int64     // half second of Redis' clock (see slotWidth) in which the tokens were taken
	day   int64     // day of Redis' clock on which the tokens were taken
	until time.Time // time until which the tokens can be used
}

// bucket is the state of one client's rate limit in this process. The times passed by callers must never decrease.
type bucket struct {
	rates rates
	began time.Time
	own   window // requests that passed in this process; their number must never exceed the limit per minute

	chunks []chunk // oldest first, none empty
	held   int
	unused []chunk

	asked      bool // Redis has responded; the fields of this group are from its latest response
	available  int  // tokens left for any process
	believedTo time.Time
	freeAt     time.Time // time when the next token is free
	wholeAt    time.Time // time when all tokens are free again

	day       int64
	dayEnds   time.Time
	used      int // tokens of the day that all processes had taken at the time usedAt
	usedAt    time.Time
	owed      int // requests that passed without a token and are not reported yet
	owedToday int // the part of `owed` that counts for the day
}

func newBucket(r rates, now time.Time) *bucket {
	b := &bucket{rates: r, began: now, day: dayOf(now)}
	// dayEnds is an estimate until Redis reports the end of its day.
	b.dayEnds = now.Add(time.Unix((b.day+1)*int64(day/time.Second), 0).Sub(now))
	return b
}

func dayOf(now time.Time) int64 { return now.Unix() / int64(day/time.Second) }

// advance removes counts and tokens that have expired, and begins a new day if it is time.
func (b *bucket) advance(now time.Time) {
	b.own.advance(now.Sub(b.began))
	if !now.Before(b.dayEnds) {
		days := now.Sub(b.dayEnds)/day + 1
		b.day, b.dayEnds = b.day+int64(days), b.dayEnds.Add(days*day)
		b.used, b.usedAt, b.owedToday = 0, time.Time{}, 0
		b.putBack(len(b.chunks))
	}
	ended := 0
	for ended < len(b.chunks) && !now.Before(b.chunks[ended].until) {
		ended++
	}
	b.putBack(ended)
}

func (b *bucket) putBack(n int) {
	for _, c := range b.chunks[:n] {
		b.held -= c.n
		b.unused = append(b.unused, c)
	}
	b.chunks = b.chunks[:copy(b.chunks, b.chunks[n:])]
}

func (b *bucket) use(n int) {
	b.held -= n
	ended := 0
	for n > 0 {
		c := &b.chunks[ended]
		used := min(n, c.n)
		n, c.n = n-used, c.n-used
		if c.n == 0 {
			ended++
		}
	}
	if ended > 0 {
		b.chunks = b.chunks[:copy(b.chunks, b.chunks[ended:])]
	}
}

// part returns a process's share of a limit. The share is at least 1, so many processes can together exceed a small limit.
func part(limit, processes int) int { return max(1, limit/max(1, processes)) }

// take takes n tokens if the request may pass. `sharers` is the number of processes while Redis is down, and 0 while Redis responds.
func (b *bucket) take(now time.Time, n, sharers int) verdict {
	b.advance(now)
	missing := n - b.held
	switch {
	case b.own.total+n > part(b.rates.perMinute, sharers):
		return tooFast
	case missing <= 0:
		b.use(n)
	case sharers > 0:
		if b.rates.perDay > 0 && b.owedToday+missing > b.leftToday(sharers) {
			return quotaUsed
		}
		b.use(b.held)
		b.owed += missing
		b.owedToday += missing
	case b.rates.perDay > 0 && b.used+missing > b.rates.perDay && now.Sub(b.usedAt) < trustQuota:
		return quotaUsed
	case b.asked && b.available < missing && now.Before(b.believedTo):
		return tooFast
	default:
		return mustAsk
	}
	b.own.add(now.Sub(b.began), n)
	return passed
}

// leftToday returns this process's share of the quota that was left for the day in Redis' latest response.
func (b *bucket) leftToday(sharers int) int {
	if left := b.rates.perDay - b.used; left > 0 {
		return part(left, sharers)
	}
	return 0
}

// busy reports whether this process uses more than rates.chunk tokens in half a second. A busy process asks early, so that its tokens last
// until Redis responds.
func (b *bucket) busy(now time.Time) bool { return b.chunk(now) > b.rates.chunk }

// chunk returns how many tokens to hold: as many as this process uses in half a second, between rates.chunk and rates.maxChunk.
func (b *bucket) chunk(now time.Time) int {
	return max(b.rates.chunk, min(b.own.pace(now.Sub(b.began)), b.rates.maxChunk))
}

// ready returns the number of unused tokens that this process has. In a busy process, tokens that expire within keepHeld/2 do not count.
func (b *bucket) ready(now time.Time) int {
	n := b.held
	if b.busy(now) {
		for _, c := range b.chunks {
			if c.until.Sub(now) < keepHeld/2 {
				n -= c.n
			}
		}
	}
	return n
}

// wants reports whether to request more tokens in advance.
func (b *bucket) wants(now time.Time) bool {
	quota := b.rates.perDay == 0 || b.used < b.rates.perDay
	return quota && b.ready(now) < b.chunk(now)/2 && b.available > 0
}

// report is what a process tells Redis: tokens to return, and requests that passed without a token.
type report struct {
	unused          []chunk
	owed, owedToday int
	counting        int // the part of `owed` from the last minute
	day             int64
}

func (r report) empty() bool { return len(r.unused) == 0 && r.owed == 0 && r.owedToday == 0 }

// report takes the unused tokens and the unreported requests out of the bucket.
func (b *bucket) report(now time.Time) report {
	b.advance(now)
	r := report{unused: b.unused, owed: b.owed, owedToday: b.owedToday, counting: min(b.owed, b.own.total), day: b.day}
	b.unused, b.owed, b.owedToday = nil, 0, 0
	return r
}

// usedChange returns what to add to Redis' count of the day; it can be negative.
func (r report) usedChange() int {
	change := r.owedToday
	for _, c := range r.unused {
		if c.day == r.day {
			change -= c.n
		}
	}
	return change
}

// takeBack adds the requests of a failed report to the next report. It does not report the unused tokens again: Redis may have received
// them, and must not count them twice.
func (b *bucket) takeBack(r report) {
	b.owed += r.owed
	if r.day == b.day {
		b.owedToday += r.owedToday
	}
}

type answer struct {
	taken     int
	available int // tokens left
	slot      int64
	free      time.Duration
	whole     time.Duration
	day       int64
	dayLeft   time.Duration
	used      int
}

func (b *bucket) receive(now, sent time.Time, a answer) {
	b.advance(now)
	b.asked, b.available = true, a.available
	b.freeAt, b.wholeAt = now.Add(a.free), now.Add(a.whole)
	b.believedTo = now.Add(min(a.free, trust))
	b.day, b.dayEnds, b.used, b.usedAt = a.day, now.Add(a.dayLeft), a.used, now
	if a.taken > 0 {
		// The lifetime of tokens begins when the request was sent. So the tokens expire before Redis stops counting them.
		b.chunks = append(b.chunks, chunk{a.taken, a.slot, a.day, sent.Add(keepHeld)})
		b.held += a.taken
		b.advance(now)
	}
}

func (b *bucket) idle(now time.Time) bool {
	b.advance(now)
	nothing := b.held == 0 && b.owed == 0 && len(b.unused) == 0 && b.own.total == 0
	return nothing && (b.rates.perDay == 0 || now.Sub(b.usedAt) > time.Minute)
}

// allowance describes the limit that refused the request. If the request passed, allowance describes the limit with fewer tokens left.
// `needs` is how many tokens a refused request needs. If `needs` is more than 1, RetryAfter is the time until all tokens are free: Redis
// does not report when `needs` tokens are free.
func (b *bucket) allowance(now time.Time, needs int, v verdict, sharers int) job.Allowance {
	limit := part(b.rates.perMinute, sharers)
	have := max(0, limit-b.own.total)
	together := b.asked && sharers == 0
	if together {
		have = min(have, b.held+b.available)
	}
	left := max(0, b.leftToday(sharers)-b.owedToday+b.held)
	var a job.Allowance
	byDay := b.rates.perDay > 0 && left < have
	if v == quotaUsed || (v == passed && byDay) || b.rates.noMinute {
		reset := b.dayEnds.Sub(now)
		a = job.Allowance{Policy: "day", Limit: b.rates.perDay, Remaining: left, Reset: reset, RetryAfter: reset}
	} else {
		elapsed := now.Sub(b.began)
		a = job.Allowance{
			Policy: "minute", Limit: b.rates.perMinute, Remaining: have,
			Reset: b.own.wholeIn(elapsed), RetryAfter: b.own.freeIn(elapsed, limit-needs+1),
		}
		if together {
			a.Reset = max(a.Reset, b.wholeAt.Sub(now))
		}
		switch {
		case together && have < needs && needs > 1:
			a.RetryAfter = a.Reset
		case together && have == 0:
			a.RetryAfter = max(a.RetryAfter, b.freeAt.Sub(now))
		}
	}
	if a.OK = v == passed; a.OK {
		a.RetryAfter = 0
	} else if needs == 1 {
		a.Remaining = 0
	}
	return a
}
