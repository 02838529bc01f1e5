package authlimit

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
)

var (
	office    = netip.MustParseAddr("203.0.113.1")
	elsewhere = netip.MustParseAddr("203.0.113.2")
)

func newTest() (l *Limiter, pass func(time.Duration)) {
	now := time.Unix(1_800_000_000, 0)
	return New(func() time.Time { return now }, telemetry.In(nil)), func(d time.Duration) { now = now.Add(d) }
}

func guess(l *Limiter, source netip.Addr, n int, credential func(int) string) (tried int) {
	for i := range n {
		if l.Check(source, credential(i)) == 0 {
			tried++
			l.Failed(source, credential(i))
		}
	}
	return tried
}

func different(i int) string { return fmt.Sprintf("frk_%012d_secret", i) }

func same(key string) func(int) string { return func(int) string { return key } }

func TestGuessesOfAnAddress(t *testing.T) {
	t.Parallel()
	l, pass := newTest()
	l.Succeeded("good")
	require.Equal(t, addressBurst, guess(l, office, 10_000, different))
	require.Equal(t, 10_000.0-addressBurst, testutil.ToFloat64(l.refused.WithLabelValues("address")))
	require.Zero(t, l.Check(office, "good"), "a recently valid credential passes")
	require.Zero(t, l.Check(elsewhere, "new"))
	wait := l.Check(office, "new")
	require.Positive(t, wait)
	pass(wait)
	require.Zero(t, l.Check(office, "new"), "the wait is long enough")
	l.Failed(office, "good")
	require.Positive(t, l.Check(office, "good"), "a failure makes the credential unknown again")
	pass(time.Second)
	require.Equal(t, addressRate, guess(l, office, 1000, different))
}

func TestGuessesOfAKey(t *testing.T) {
	t.Parallel()
	l, pass := newTest()
	wrong := same("frk_abcdefghijkl_wrong")
	require.Equal(t, keyBurst, guess(l, office, 1000, wrong))
	require.Zero(t, l.Check(office, "frk_mnopqrstuvwx_right"), "other keys from the address pass")
	require.Zero(t, l.Check(elsewhere, "frk_abcdefghijkl_right"), "the owner can use the key from another address")
	require.Equal(t, 1, guess(l, elsewhere, 1000, wrong), "another address has one attempt")
	for range 50 {
		pass(time.Second)
		require.Equal(t, keyRate, guess(l, office, 1000, wrong), "one attempt per second")
	}
}

func TestTablesAreBounded(t *testing.T) {
	t.Parallel()
	l, _ := newTest()
	require.Equal(t, addressBurst, guess(l, office, 1000, different))
	for i := range 3 * maxEntries {
		source := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		l.Failed(source, different(i))
		l.Succeeded(different(i))
		if i%100 == 0 {
			require.Positive(t, l.Check(office, "new"), "an active address stays in the table")
		}
	}
	require.Equal(t, maxEntries, l.addresses.Len())
	require.Equal(t, maxEntries, l.keys.Len())
	require.Equal(t, maxEntries, l.good.Len())
}

func TestLogLinesAreLimited(t *testing.T) {
	t.Parallel()
	l, pass := newTest()
	logged, counted := 0, map[string]int{}
	for i := range 10_000 {
		pass(time.Millisecond)
		reason := []string{"wrong", "wrong", "expired"}[i%3]
		if omitted, due := l.Line(reason); due {
			logged++
			counted[reason]++
			for omittedReason, n := range omitted {
				counted[omittedReason] += n
			}
		}
	}
	for reason, n := range l.unlogged {
		counted[reason] += n
	}
	require.InDelta(t, 10*maxLines, logged, maxLines)
	require.Equal(t, map[string]int{"wrong": 6667, "expired": 3333}, counted, "each failure is counted")
}

func TestPublicPart(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abcdefghijkl", keyID("frk_abcdefghijkl_"+strings.Repeat("x", 49)))
	for _, none := range []string{"", "frk_", "frk_abcdefghijkl", "frk_abcdefghijklm_x", "abcdefghijkl_x", "an-operators-token"} {
		require.Empty(t, keyID(none), none)
	}
}
