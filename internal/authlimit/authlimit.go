// Package authlimit slows down attackers who guess credentials. It counts failures of each address and of each key. After too many
// failures, it refuses further attempts for a while. It also limits the number of log lines about failures. All listeners of a process
// share one Limiter. The type Registrations limits registrations without credentials.
//
// This package only limits attempts. Other packages check the credentials.
package authlimit

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/forgerun/forgerun/internal/telemetry"
)

// Limits of failures. A client that keeps sending one wrong key reaches the limit of the key first. Attempts that the key's limit
// refuses do not count against the address, because other clients may have the same address.
const (
	addressRate  = 10 // per second
	addressBurst = 100
	keyRate      = 1
	keyBurst     = 10
	recent       = time.Minute
)

// maxEntries limits each table. Three full tables (addresses, keys, credentials) take about 5 MB.
const maxEntries = 10_000

func newTable[K comparable, V any]() *lru.LRU[K, V] {
	table, _ := lru.NewLRU[K, V](maxEntries, nil) // fails for a size of 0 only
	return table
}

// maxLines is the maximum number of log lines per second about failures.
const maxLines = 3

// Limiter counts failed attempts to authenticate.
type Limiter struct {
	clock   func() time.Time
	refused *prometheus.CounterVec
	failed  prometheus.Counter

	mu        sync.Mutex
	addresses *lru.LRU[netip.Addr, *failures]
	keys      *lru.LRU[string, *failures]  // by the public part of a key
	good      *lru.LRU[[32]byte, struct{}] // hashes of recently valid credentials
	lines     *rate.Limiter
	unlogged  map[string]int // failures since the last log line, by reason
}

type failures struct {
	*rate.Limiter // each failure takes one token
	last          time.Time
}

// New makes a limiter.
func New(clock func() time.Time, f telemetry.Factory) *Limiter {
	return &Limiter{
		clock: clock,
		refused: f.Counters("auth_attempts_refused_total",
			"Authentication attempts refused without a check after too many failures (reason: from the same address or with the same key).",
			[]string{"reason"}, "address", "key"),
		failed: f.Counter("auth_attempts_failed_total",
			"Wrong credentials presented, at all listeners of the process."),
		addresses: newTable[netip.Addr, *failures](),
		keys:      newTable[string, *failures](),
		good:      newTable[[32]byte, struct{}](),
		lines:     rate.NewLimiter(maxLines, maxLines),
		unlogged:  map[string]int{},
	}
}

// Check returns zero if an attempt is allowed, otherwise the wait before the next one. Recently valid credentials always pass, regardless
// of failures with the same address or key id. The limit of a key applies only to addresses with recent failures. So an attacker at another
// address cannot lock out the key's owner.
func (l *Limiter) Check(source netip.Addr, credential string) (wait time.Duration) {
	hash := sha256.Sum256([]byte(credential))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.good.Get(hash); ok {
		return 0
	}
	address, failed := l.addresses.Get(source)
	if !failed {
		return 0
	}
	now := l.clock()
	if key, ok := l.keys.Get(keyID(credential)); ok && now.Sub(address.last) < recent {
		if wait := key.untilNext(now); wait > 0 {
			l.refused.WithLabelValues("key").Inc()
			return wait
		}
	}
	if wait = address.untilNext(now); wait > 0 {
		l.refused.WithLabelValues("address").Inc()
	}
	return wait
}

func (f *failures) untilNext(now time.Time) time.Duration { return untilNext(f.Limiter, now) }

func untilNext(l *rate.Limiter, now time.Time) time.Duration {
	missing := 1 - l.TokensAt(now)
	if missing <= 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration(missing/float64(l.Limit())*float64(time.Second)))
}

// Failed counts a failed attempt.
func (l *Limiter) Failed(source netip.Addr, credential string) {
	hash := sha256.Sum256([]byte(credential))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.good.Remove(hash)
	l.failed.Inc()
	now := l.clock()
	count(l.addresses, source, now, addressRate, addressBurst)
	if id := keyID(credential); id != "" {
		count(l.keys, id, now, keyRate, keyBurst)
	}
}

func count[K comparable](table *lru.LRU[K, *failures], who K, now time.Time, limit rate.Limit, burst int) {
	f, ok := table.Get(who)
	if !ok {
		f = &failures{Limiter: rate.NewLimiter(limit, burst)}
		table.Add(who, f)
	}
	f.AllowN(now, 1) // the limit may be used up already, because several attempts can pass Check before the first one fails
	f.last = now
}

// Succeeded records valid credentials.
func (l *Limiter) Succeeded(credential string) {
	hash := sha256.Sum256([]byte(credential))
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.good.Get(hash); !ok {
		l.good.Add(hash, struct{}{})
	}
}

// Line reports whether to log a failure. `omitted` has the number of unlogged failures since the last log line, by reason.
func (l *Limiter) Line(reason string) (omitted map[string]int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lines.AllowN(l.clock(), 1) {
		l.unlogged[reason]++
		return nil, false
	}
	omitted, l.unlogged = l.unlogged, map[string]int{}
	return omitted, true
}

// An API key begins with its public part: frk_, 12 characters and an underscore.
const (
	keyPrefix   = "frk_"
	keyIDLength = 12
)

func keyID(credential string) string {
	rest, ok := strings.CutPrefix(credential, keyPrefix)
	if !ok || len(rest) <= keyIDLength || rest[keyIDLength] != '_' {
		return ""
	}
	return strings.Clone(rest[:keyIDLength])
}
