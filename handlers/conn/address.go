package conn

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of the proxies whose X-Forwarded-For is believed.
type Proxies []netip.Prefix

// Trusts reports whether an address is that of a trusted proxy.
func (p Proxies) Trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(addr.Unmap()) })
}

// Client gives the address that a request came from: that of the connection,
// and behind trusted proxies the last one in the lines of X-Forwarded-For that
// is no trusted proxy. What stands before it the client may have written
// itself; text that is no address ends the search at the proxy that passed it on.
func (p Proxies) Client(remote netip.Addr, forwarded ...string) netip.Addr {
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	addr := remote.Unmap()
	for i := len(hops) - 1; i >= 0 && p.Trusts(addr); i-- {
		hop, err := parseHop(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		addr = hop
	}
	return addr
}

// parseHop reads an address with or without a port.
func parseHop(s string) (netip.Addr, error) {
	if hop, err := netip.ParseAddrPort(s); err == nil {
		return hop.Addr().Unmap().WithZone(""), nil
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(s, "["), "]"))
	return addr.Unmap().WithZone(""), err
}

// ipv6Bits is the part of an IPv6 address that one subscriber has, with
// all addresses that share it.
const ipv6Bits = 64

// Source is what limits by address count: an IPv4 address, or the network of
// an IPv6 address.
func Source(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if !addr.Is6() {
		return addr
	}
	network, _ := addr.WithZone("").Prefix(ipv6Bits) // fails for other lengths only
	return network.Addr()
}

// AddrOf gives the address in a connection's remote address; it is not valid
// for one without, such as that of a Unix socket.
func AddrOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(tcp.IP)
	return addr.Unmap()
}
