package conn

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Proxies are the networks of trusted proxies. X-Forwarded-For counts only in requests from these proxies.
type Proxies []netip.Prefix

// Trusts reports whether addr belongs to a trusted proxy.
func (p Proxies) Trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(addr.Unmap()) })
}

// Client returns the client's address. Behind trusted proxies, this is the last untrusted address in X-Forwarded-For. Earlier entries may
// be forged by the client.
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
			break // malformed entry: return the address of the proxy that sent it
		}
		addr = next.Unmap().WithZone("")
	}
	return addr
}

// ipv6Bits is the prefix length of the network that an IPv6 subscriber usually has.
const ipv6Bits = 64

// Source returns the key for limits per address: an IPv4 address itself, or the /64 network of an IPv6 address.
func Source(addr netip.Addr) netip.Addr {
	if addr = addr.Unmap(); !addr.Is6() {
		return addr
	}
	network, _ := addr.WithZone("").Prefix(ipv6Bits)
	return network.Addr()
}

// AddrOf returns the IP address of a remote address. The result is invalid if the address is not TCP, as for Unix sockets.
func AddrOf(remote net.Addr) netip.Addr {
	if tcp, ok := remote.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
