package webhook

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"syscall"

	"code.dny.dev/ssrf"
)

// Guard decides which addresses may be called. The dialer asks the guard about each resolved address. Check finds some problems earlier,
// from the URL alone.
type Guard struct {
	allowPrivate bool
	public       *ssrf.Guardian
}

// 168.63.129.16 looks public, but on Azure it reaches the platform's own services.
var platformAddresses = netip.MustParsePrefix("168.63.129.16/32")

// NewGuard makes a guard that allows public addresses, or all addresses if allowPrivate is true. It never allows well-known ports of
// other protocols, such as 22 or 6379.
func NewGuard(allowPrivate bool) *Guard {
	return &Guard{allowPrivate, ssrf.New(ssrf.WithAnyPort(), ssrf.WithDeniedV4Prefixes(platformAddresses))}
}

var errForbidden = errors.New("the address is not allowed")

// The net.Dialer calls control with each resolved address before connecting.
func (g *Guard) control(network, address string, _ syscall.RawConn) error {
	if _, port, err := net.SplitHostPort(address); err != nil || checkPort(port) != "" {
		return errForbidden
	}
	if g.allowPrivate || g.public.Safe(network, address, nil) == nil {
		return nil
	}
	return errForbidden
}

const (
	notAURL = "This must be an absolute URL, such as https://example.com/done."
	unclear = "The host must be a name in ASCII without a dot at its end (such as example.com; write other letters as xn--...), " +
		"or an IP address in its usual form (such as 8.8.8.8 or [2606:4700::1111])."
	notPublic = "The host must have a public address; local, private and reserved addresses are not allowed."
)

// Check describes the problem with the host or port of a URL, or returns "". It always refuses hosts that programs parse differently,
// such as 0x7f.1, IPv6 zones and names with a trailing dot.
func (g *Guard) Check(target string) string {
	_, wrong := g.parse(target)
	return wrong
}

func (g *Guard) parse(target string) (*url.URL, string) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, notAURL
	}
	return u, cmp.Or(g.checkHost(u), checkPort(u.Port()))
}

func (g *Guard) checkHost(u *url.URL) string {
	host := u.Hostname()
	bracketed := strings.HasPrefix(u.Host, "[")
	if !bracketed && !numberPattern.MatchString(host) {
		switch {
		case len(host) > 253 || !namePattern.MatchString(host) || strings.Count(u.Host, ":") > 1:
			return unclear
		case !g.allowPrivate && isLocalhost(host):
			return notPublic
		}
		return ""
	}
	addr, err := netip.ParseAddr(host) // ParseAddr refuses leading zeros and missing parts
	switch {
	case err != nil || addr.Is6() != bracketed || addr.Zone() != "":
		return unclear
	case !g.allowPrivate && g.public.SafeAddr(addr) != nil:
		return notPublic
	}
	return ""
}

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*$`)
	// numberPattern matches a decimal, octal or hexadecimal number as the last label. Some programs read a host with such a label as an
	// IPv4 address (URL standard, section 3.5).
	numberPattern = regexp.MustCompile(`(?:^|\.)(?:0[xX][0-9a-fA-F]*|[0-9]+)$`)
)

// isLocalhost reports whether a name refers to this machine (RFC 6761, section 6.3).
func isLocalhost(host string) bool {
	host = strings.ToLower(host)
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
