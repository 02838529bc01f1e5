// Package cors decides which web pages may call the API from a browser, and with which headers (CORS). Cookies and other browser
// credentials are never allowed. Pages send an API key instead.
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

// Special entries in a list of origins.
const (
	Any      = "*"
	Loopback = "loopback"
)

// Origins are the allowed origins; the zero value allows none.
type Origins struct {
	any, loopback bool
	listed        []string
}

var errForm = errors.New("origins separated by commas, such as https://app.example.com,http://localhost:5173: scheme, host and port, " +
	"no path; the word loopback for all origins on this machine; or only * for all origins")

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

// None reports whether no origin is allowed.
func (o Origins) None() bool { return !o.any && !o.loopback && len(o.listed) == 0 }

// Any reports whether all origins are allowed. If so, responses do not depend on the Origin header.
func (o Origins) Any() bool { return o.any }

var onThisMachine = localhosts.Only("")

// Allows reports whether pages of an origin may call the API. Only * allows the origin null, because any local file or sandboxed frame
// sends it.
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

// serialized returns an origin as browsers send it: in lower case and without a default port. It returns false for other texts. Non-ASCII
// names must be in DNS form (punycode).
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
