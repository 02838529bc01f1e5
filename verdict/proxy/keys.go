package proxy

import (
	"encoding/base64"
	"hash/maphash"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/redact"
)

const (
	maxKeys  = 1000
	minKey   = 8  // minimum length of a key with a digit
	plainKey = 16 // minimum length of a key without a digit; shorter ones may be words
)

var keySeed = maphash.MakeSeed()

// keys holds the hashes of the credentials that clients sent in headers.
type keys struct {
	hashes map[uint64]bool
	sizes  []int
}

func (k *keys) add(key string) bool {
	hash := maphash.String(keySeed, key)
	if k.hashes[hash] || len(k.hashes) == maxKeys {
		return false
	}
	if k.hashes == nil {
		k.hashes = map[uint64]bool{}
	}
	k.hashes[hash] = true
	if !slices.Contains(k.sizes, len(key)) {
		k.sizes = append(k.sizes, len(key))
	}
	return true
}

// find returns a stored key that `text` contains, escaped or not. If there is none, it returns "".
func (k *keys) find(text string) string {
	for _, form := range forms(text) {
		for _, size := range k.sizes {
			for at := 0; at+size <= len(form); at++ {
				if at > 0 && alphanumeric(form[at-1]) || at+size < len(form) && alphanumeric(form[at+size]) { // part of another word
					continue
				}
				if part := form[at : at+size]; k.hashes[maphash.String(keySeed, part)] {
					return part
				}
			}
		}
	}
	return ""
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

var escape = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

func forms(text string) []string {
	all := []string{text}
	for range 2 {
		if !strings.ContainsAny(text, "%+") {
			break
		}
		text = escape.ReplaceAllStringFunc(text, func(found string) string {
			plain, err := url.PathUnescape(found)
			if err != nil { // impossible for matches of the expression
				return found
			}
			return plain
		})
		all = append(all, text, strings.ReplaceAll(text, "+", " "))
	}
	return all
}

// keyInURL sets x.KeyInURL if the URL contains a key: the parameter access_token (RFC 6750, section 2.3), or a key that the
// session has seen in a header. URLs that come from the target do not count: the client did not build them.
func (s *sessions) keyInURL(in *session, r *http.Request, x *verdict.Exchange) {
	s.within(in, func(n *session) {
		for _, key := range s.keysOf(r.Header) {
			if n.keys.add(key) {
				n.bytes += perText
				n.log.RemoveKeys(func(path, query string) (string, string, bool) { return without(key, path, query) })
			}
		}
		if here := s.at(r.URL, r.URL.RequestURI()); n.jobs[here] != nil || n.results[here] != "" {
			return
		}
		if found := n.keys.find(r.URL.RequestURI()); found != "" {
			x.Path, x.Query, _ = without(found, x.Path, x.Query)
			x.KeyInURL = true
			return
		}
		x.KeyInURL = r.URL.RawQuery != "" && r.URL.Query().Has("access_token")
	})
}

// without returns a stored path and query with the key masked, and reports whether they contained the key. A key that is already masked
// in the query counts as found.
func without(key, path, query string) (shownPath, shownQuery string, found bool) {
	one := keys{}
	one.add(key)
	var masks []string
	for _, form := range []string{key, url.QueryEscape(key), url.PathEscape(key)} {
		found = found || strings.Contains(query, redact.Mask(form))
		masks = append(masks, form, redact.Mask(key))
	}
	masked := strings.NewReplacer(masks...)
	for _, part := range []*string{&path, &query} {
		if one.find(*part) == "" {
			continue
		}
		found = true
		if *part = masked.Replace(*part); one.find(*part) != "" { // the key is escaped in another way
			*part = redact.Mask(key)
		}
	}
	return path, query, found
}

// notKeys matches names of headers that look like credentials but do not identify one client. Hyphens are removed from a name before it
// is compared.
var notKeys = regexp.MustCompile(`cookie|csrf|xsrf|session|signature|hmac|` +
	`^sig$|^sid$|^code$|page|continuation|next|idempotency|xamzsecurity`)

func (s *sessions) keysOf(h http.Header) (all []string) {
	for name, values := range h {
		plain := strings.ToLower(strings.ReplaceAll(name, "-", ""))
		if !redact.Secret(name) && plain != "xkey" || notKeys.MatchString(plain) || s.api.Names(name) {
			continue
		}
		for _, value := range values {
			if key := keyOf(value); len(key) >= plainKey || len(key) >= minKey && strings.ContainsAny(key, "0123456789") {
				all = append(all, key)
			}
		}
	}
	return all
}

// keyOf returns the key in a header value, or "" if there is none. The key may follow a scheme such as Bearer, or be the password in
// Basic credentials.
func keyOf(value string) string {
	scheme, key, credentials := strings.Cut(strings.TrimSpace(value), " ")
	switch {
	case !credentials:
		return scheme
	case strings.EqualFold(scheme, "Basic"):
		text, err := base64.StdEncoding.DecodeString(strings.TrimSpace(key))
		if err != nil {
			return ""
		}
		user, password, _ := strings.Cut(string(text), ":")
		if len(password) > 1 {
			return password
		}
		return user // some APIs use the key as the user name, without a password
	}
	key = strings.Trim(strings.TrimPrefix(strings.TrimSpace(key), "token="), `"`)
	if strings.ContainsAny(key, ", ") { // not a key: a signature with parameters
		return ""
	}
	return key
}
