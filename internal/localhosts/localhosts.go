// Package localhosts checks whether the Host of a request belongs to a server on this machine. This prevents DNS rebinding attacks, in
// which the Host is a name of the attacker.
package localhosts

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// Limits of DNS names (RFC 1035, section 2.3.4).
const (
	maxName  = 253
	maxLabel = 63
)

// dockerHost is the name by which Docker containers reach their machine. An attacker cannot register this name, because the top-level
// domain "internal" is reserved for private use.
const dockerHost = "host.docker.internal"

// Only is like [These] with a single name: the host of publicURL.
func Only(publicURL string) func(host string) bool {
	u, err := url.Parse(publicURL)
	if err != nil {
		return These()
	}
	return These(u.Hostname())
}

// ThisMachine is like [These] with the given names and the names of this machine.
func ThisMachine(names ...string) func(host string) bool {
	own, _ := os.Hostname() // after an error the name is "", which the check ignores
	return These(append(names, own, dockerHost)...)
}

// These returns a check of Host headers. The check allows localhost, its subdomains, loopback addresses and the given names, with any
// port. It refuses an empty Host.
func These(names ...string) func(host string) bool {
	allowed := map[string]bool{}
	for _, name := range names {
		allowed[nameOf(name)] = true
	}
	delete(allowed, "")
	return func(host string) bool {
		name := nameOf(host)
		addr, err := netip.ParseAddr(name)
		return allowed[name] || isLocal(name) || err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback()
	}
}

// FromOtherPage reports whether a web page of another origin caused the request. Pages on other ports of localhost are other origins,
// although browsers call them same-site. FromOtherPage returns false if the user follows a link on such a page, because the page cannot
// read the response.
func FromOtherPage(method, host string, header func(name string) string) bool {
	switch header("Sec-Fetch-Site") {
	case "same-origin", "none":
		return false
	case "same-site":
		return method != "GET" || header("Sec-Fetch-Mode") != "navigate" || header("Sec-Fetch-Dest") != "document"
	case "": // old browsers omit the header, and all browsers omit it for plain HTTP outside localhost
		origin := header("Origin")
		u, err := url.Parse(origin)
		return origin != "" && (err != nil || !strings.EqualFold(u.Host, host))
	}
	return true
}

// nameOf returns the host without a port, or "" if it is invalid.
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

// Reachable returns the address at which programs on this machine reach a listener. For a listener on all addresses, it is a loopback
// address.
func Reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}
