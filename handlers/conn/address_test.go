package conn

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientAddress(t *testing.T) {
	t.Parallel()
	proxies := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")}
	for _, test := range []struct {
		name, remote string
		forwarded    []string
		want         string
	}{
		{"no proxy", "198.51.100.7", nil, "198.51.100.7"},
		{"a stranger's header says nothing", "198.51.100.7", []string{"203.0.113.1"}, "198.51.100.7"},
		{"behind a proxy", "10.0.0.1", []string{"203.0.113.1"}, "203.0.113.1"},
		{"what the client wrote itself", "10.0.0.1", []string{"192.0.2.1, 203.0.113.1"}, "203.0.113.1"},
		{"two proxies", "10.0.0.1", []string{"192.0.2.1, 203.0.113.1, 10.0.0.2"}, "203.0.113.1"},
		{"several lines are one list", "10.0.0.1", []string{"192.0.2.1", "203.0.113.1 ,10.0.0.2"}, "203.0.113.1"},
		{"a list that claims trusted addresses ends there", "10.0.0.1", []string{"10.0.0.3"}, "10.0.0.3"},
		{"no header", "10.0.0.1", nil, "10.0.0.1"},
		{"no address", "10.0.0.1", []string{"203.0.113.1, unknown"}, "10.0.0.1"},
		{"no address before a proxy", "10.0.0.1", []string{"evil, 10.0.0.2"}, "10.0.0.2"},
		{"with a port", "10.0.0.1", []string{"203.0.113.1:4711"}, "203.0.113.1"},
		{"IPv6 with a port", "10.0.0.1", []string{"[2001:db9::1]:4711"}, "2001:db9::1"},
		{"IPv6 in brackets, through two proxies", "2001:db8::1", []string{"[2001:db9::1%x], 2001:db8::2"}, "2001:db9::1"},
		{"IPv4 in IPv6", "::ffff:10.0.0.1", []string{"::ffff:203.0.113.1"}, "203.0.113.1"},
	} {
		require.Equal(t, test.want, proxies.Client(netip.MustParseAddr(test.remote), test.forwarded...).String(), test.name)
	}
	require.Equal(t, "10.0.0.1", Proxies(nil).Client(netip.MustParseAddr("10.0.0.1"), "203.0.113.1").String(), "nobody is trusted unasked")
}

func TestSource(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"203.0.113.1": "203.0.113.1", "::ffff:203.0.113.1": "203.0.113.1",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
	} {
		require.Equal(t, want, Source(netip.MustParseAddr(addr)).String())
	}
	require.Equal(t, "127.0.0.1", AddrOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}).String())
	require.False(t, AddrOf(&net.UnixAddr{}).IsValid())
	require.NotPanics(t, func() { Source(netip.Addr{}) })
}
