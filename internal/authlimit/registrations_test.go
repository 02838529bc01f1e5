package authlimit

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newRegistrations(perMinute int) (r *Registrations, pass func(time.Duration)) {
	now := time.Unix(1_800_000_000, 0)
	return NewRegistrations(perMinute, func() time.Time { return now }), func(d time.Duration) { now = now.Add(d) }
}

func register(r *Registrations, source netip.Addr, n int) (made int) {
	for range n {
		if r.Take(source) == 0 {
			made++
		}
	}
	return made
}

func TestRegistrationsOfAnAddress(t *testing.T) {
	t.Parallel()
	r, pass := newRegistrations(60)
	require.Equal(t, 60, register(r, office, 1000))
	require.Equal(t, 60, register(r, elsewhere, 1000))
	wait := r.Take(office)
	require.Equal(t, time.Second, wait)
	pass(wait)
	require.Equal(t, 1, register(r, office, 10), "the wait is long enough")
	pass(time.Hour)
	require.Equal(t, 60, register(r, office, 1000))
	for _, free := range []netip.Addr{{}, netip.MustParseAddr("127.0.0.9"), netip.IPv6Loopback()} {
		require.Equal(t, 1000, register(r, free, 1000), free)
	}
	unlimited, _ := newRegistrations(0)
	require.Equal(t, 1000, register(unlimited, office, 1000))
}

func TestRegistrationsTakeBoundedMemory(t *testing.T) {
	t.Parallel()
	r, _ := newRegistrations(60)
	register(r, office, 60)
	for i := range 2 * maxEntries {
		require.Zero(t, r.Take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})))
		if i%100 == 0 {
			require.Positive(t, r.Take(office), "an active address stays in the table")
		}
	}
	require.Equal(t, maxEntries, r.addresses.Len())
}
