// Package localhosts tells by the Host of a request whether it was meant for a
// server on this machine. A page whose own name was made to point here (DNS
// rebinding) has a browser send that name.
package localhosts

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// Only allows the Hosts localhost, *.localhost, loopback addresses and that of
// the public URL, each with any port. It allows none too: browsers always send one.
func Only(publicURL string) func(host string) bool {
	public := ""
	if u, err := url.Parse(publicURL); err == nil {
		public = strings.ToLower(u.Hostname())
	}
	return func(host string) bool {
		name := nameOf(host)
		addr, err := netip.ParseAddr(name)
		return name == "" || name == public || name == "localhost" || strings.HasSuffix(name, ".localhost") ||
			err == nil && addr.Unmap().IsLoopback()
	}
}

// nameOf is the name or address in a Host.
func nameOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
