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

// Client returns the address that a request came from: that of the connection, or behind trusted proxies the last one in
// X-Forwarded-For that is no trusted proxy. The client may have written what stands before it.
func (p Proxies) Client(remote netip.Addr, forwarded ...string) netip.Addr {
	hops := strings.Split(strings.Join(forwarded, ","), ",")
	addr := remote.Unmap()
	for i := len(hops) - 1; i >= 0 && p.Trusts(addr); i-- {
		hop := strings.TrimSpace(hops[i])
		next, err := netip.ParseAddr(strings.Trim(hop, "[]"))
		if with, failed := netip.ParseAddrPort(hop); failed == nil {
			next, err = with.Addr(), nil
		}
		if err != nil {
			break // the proxy that passed it on
		}
		addr = next.Unmap().WithZone("")
	}
	return addr
}

// ipv6Bits is the part of an IPv6 address that one subscriber has, with all addresses that share it.
const ipv6Bits = 64

// Source returns what limits by address count: an IPv4 address, or the network of an IPv6 address.
func Source(addr netip.Addr) netip.Addr {
	if addr = addr.Unmap(); !addr.Is6() {
		return addr
	}
	network, _ := addr.WithZone("").Prefix(ipv6Bits) // fails for other lengths only
	return network.Addr()
}

// AddrOf returns the address in a connection's remote address; it is not valid for one without, such as that of a Unix socket.
func AddrOf(remote net.Addr) netip.Addr {
	if tcp, ok := remote.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
