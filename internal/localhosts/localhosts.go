// Package localhosts tells by the Host of a request whether it was meant for a
// server on this machine. A page whose own name was made to point here (DNS
// rebinding) has a browser send that name.
package localhosts

import (
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// The bounds of names in the DNS (RFC 1035, section 2.3.4).
const (
	maxName  = 253
	maxLabel = 63
)

// Only allows the Hosts localhost, names below it, loopback addresses and that of
// the public URL, each with any port. No Host at all is that of nobody.
func Only(publicURL string) func(host string) bool {
	public := ""
	if u, err := url.Parse(publicURL); err == nil {
		public = strings.ToLower(u.Hostname())
	}
	return func(host string) bool {
		name := nameOf(host)
		addr, err := netip.ParseAddr(name)
		return name != "" && name == public || isLocal(name) || err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
	}
}

// nameOf is the name or address in a Host, "" if it has none.
func nameOf(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return host
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		if _, err := strconv.ParseUint(host[i+1:], 10, 16); err != nil {
			return ""
		}
		host = host[:i]
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if addr, err := netip.ParseAddr(inner); !ok || err != nil || !addr.Is6() {
			return ""
		}
		return inner
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isLocal reports whether a name is localhost, or one of labels below it.
func isLocal(name string) bool {
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if !isLabel(label) {
			return false
		}
	}
	return len(name) <= maxName && labels[len(labels)-1] == "localhost"
}

func isLabel(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-' && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= maxLabel
}

// Reachable is how somebody on this machine reaches a listener: one on all addresses, as in a container, is reached
// on loopback.
func Reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}
