package authlimit

import (
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// RegistrationRate is the number of clients that an address may register per minute at each api process.
const RegistrationRate = 60

// Registrations limits how many clients an address registers. Loopback addresses and connections without an address have no limit.
type Registrations struct {
	perMinute int
	clock     func() time.Time

	mu        sync.Mutex
	addresses *lru.LRU[netip.Addr, *rate.Limiter]
}

// NewRegistrations sets the limit per address and minute; 0 means no limit.
func NewRegistrations(perMinute int, clock func() time.Time) *Registrations {
	return &Registrations{perMinute: perMinute, clock: clock, addresses: newTable[netip.Addr, *rate.Limiter]()}
}

// PerMinute returns the limit per address and minute.
func (r *Registrations) PerMinute() int { return r.perMinute }

// Take counts a registration. It returns zero if the registration is allowed, otherwise the wait before the next one.
func (r *Registrations) Take(source netip.Addr) (wait time.Duration) {
	if r.perMinute == 0 || !source.IsValid() || source.IsLoopback() {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock()
	l, ok := r.addresses.Get(source)
	if !ok {
		l = rate.NewLimiter(rate.Limit(r.perMinute)/60, r.perMinute)
		r.addresses.Add(source, l)
	}
	if l.AllowN(now, 1) {
		return 0
	}
	return untilNext(l, now)
}
