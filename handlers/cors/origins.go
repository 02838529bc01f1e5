// Package cors says which web pages may call the API from a browser, and what
// they may send and read (the CORS protocol of the Fetch standard). Credentials
// of the browser's own are never allowed: a page sends the key that it has.
package cors

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/internal/localhosts"
)

// Words that stand for many origins.
const (
	Any      = "*"
	Loopback = "loopback"
)

// Origins are those whose pages may call the API; the zero value has none.
type Origins struct {
	any, loopback bool
	listed        []string // as browsers write them
}

// errForm says what a list must be.
var errForm = errors.New("origins separated by commas, such as https://app.example.com,http://localhost:5173: scheme, host and port, " +
	"no path; loopback for all of this machine; or * alone for all")

// Parse reads a list of origins.
func Parse(text string) (Origins, error) {
	var o Origins
	for entry := range strings.SplitSeq(text, ",") {
		switch entry = strings.TrimSpace(entry); entry {
		case "":
		case Any:
			o.any = true
		case Loopback:
			o.loopback = true
		default:
			origin, ok := serialized(entry)
			if !ok {
				return Origins{}, errForm
			}
			o.listed = append(o.listed, origin)
		}
	}
	if o.any && (o.loopback || len(o.listed) > 0) {
		return Origins{}, errForm
	}
	return o, nil
}

// None reports whether no page may call.
func (o Origins) None() bool { return !o.any && !o.loopback && len(o.listed) == 0 }

// Any reports whether all pages may call: then answers do not depend on who asks.
func (o Origins) Any() bool { return o.any }

// onThisMachine knows the hosts that are always this machine.
var onThisMachine = localhosts.Only("")

// Allows reports whether pages of an origin may call. It is the value of an
// Origin header; null, which files and sandboxed frames send, is everybody's.
func (o Origins) Allows(origin string) bool {
	if o.any || slices.Contains(o.listed, origin) {
		return true
	}
	if !o.loopback {
		return false
	}
	scheme, host, _ := strings.Cut(origin, "://")
	return (scheme == "http" || scheme == "https") && onThisMachine(host)
}

// serialized writes an origin as browsers do: in lower case, without the port
// that its scheme has anyway. Names that are not ASCII must be given as they are
// in the DNS.
func serialized(text string) (string, bool) {
	u, err := url.Parse(strings.ToLower(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || text != "" && !strings.EqualFold(text, u.Scheme+"://"+u.Host) {
		return "", false
	}
	host, port := u.Hostname(), u.Port()
	if !isHost(host) || strings.HasSuffix(u.Host, ":") {
		return "", false
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return "", false
		}
		if u.Scheme == "http" && n != 80 || u.Scheme == "https" && n != 443 {
			host += ":" + strconv.FormatUint(n, 10)
		}
	}
	return u.Scheme + "://" + host, true
}

func isHost(host string) bool {
	if strings.Contains(host, ":") {
		addr, err := netip.ParseAddr(host)
		return err == nil && addr.Zone() == "" && addr.String() == host
	}
	return strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-.") == "" && host != "" && !strings.HasPrefix(host, ".")
}
