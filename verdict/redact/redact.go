// Package redact masks secrets in recorded requests and responses, and limits the size of texts. Equal secrets have equal masks within a
// process, so that records can be compared.
package redact

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// MaxText is the maximum size of a stored text, in bytes.
const MaxText = 400

const (
	maxValue = 200 // maximum size of the value of a query parameter, in bytes
	maxParts = 64  // maximum number of stored query parameters; a hash stands for all others
	maxDepth = 3   // maximum nesting of URLs in parameters of URLs
	slack    = 512 // bytes to search after the stored part of a text, because a secret may end there
)

// names lists the names of secrets, in lower case and without punctuation.
var names = []string{
	"key", "sig", "code", "auth", "authorization", "proxyauthorization", "pass", "passwd", "pwd", "passphrase", "pin", "otp", "jwt", "bearer",
	"cookie", "setcookie", "session", "sessionid", "jsessionid", "phpsessid", "sid", "csrf", "xsrf", "assertion", "samlresponse",
	"samlrequest", "codeverifier", "hmac", "sharedkey",
}

var endings = []string{
	"token", "secret", "password", "signature", "credential", "credentials", "apikey", "appkey", "accesskey", "accesskeyid", "secretkey",
	"privatekey", "authkey", "functionskey", "subscriptionkey", "webhookkey", "signingkey", "licensekey", "clientkey", "masterkey",
}

// Secret reports whether `name` is a usual name of a parameter, header or member with a secret.
func Secret(name string) bool {
	if plain, err := url.QueryUnescape(name); err == nil {
		name = plain
	}
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(name))
	return slices.Contains(names, name) || slices.ContainsFunc(endings, func(end string) bool { return strings.HasSuffix(name, end) })
}

var key = []byte(rand.Text()) // random per process, so secrets cannot be guessed from their masks

var masked = regexp.MustCompile(`^\*\*\*[0-9a-f]{8}$`)

// Mask returns the mask of a secret.
func Mask(secret string) string {
	if secret == "" || masked.MatchString(secret) {
		return secret
	}
	return "***" + sum(secret, 4)
}

func sum(text string, bytes int) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return hex.EncodeToString(m.Sum(nil)[:bytes])
}

// Query masks the secrets in the query of a URL and shortens long values.
func Query(raw string) string { return query(raw, "&", 0) }

func query(raw, separator string, depth int) string {
	if !strings.Contains(raw, "=") {
		return bounded(raw, MaxText, Text)
	}
	parts := strings.SplitN(raw, separator, maxParts)
	if rest := parts[len(parts)-1]; len(parts) == maxParts && strings.Contains(rest, separator) {
		parts[len(parts)-1] = "..." + sum(rest, 8)
	}
	for i, part := range parts {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case ok && Secret(name):
			parts[i] = name + "=" + Mask(value)
		case separator == "&" && strings.Contains(part, ";"):
			parts[i] = query(part, ";", depth)
		case ok:
			parts[i] = name + "=" + bounded(value, maxValue, func(value string) string { return nested(value, depth) })
		}
	}
	return strings.Join(parts, separator)
}

// nested masks the secrets in a value that may itself be a URL or form-encoded.
func nested(value string, depth int) string {
	plain, err := url.QueryUnescape(value)
	if err != nil || depth == maxDepth {
		return Text(value)
	}
	if shown := target(plain, depth+1); shown != plain {
		return url.QueryEscape(shown)
	}
	return value
}

var (
	userinfo = regexp.MustCompile(`(://|^//)[^/?#\s@]*(?:@[^/?#\s@]*)*@`)
	matrix   = regexp.MustCompile(`;([^;/=?#]+)=([^;/?#]*)`)
)

// URL masks the secrets in an address or the target of a request.
func URL(text string) string { return target(text, 0) }

func target(text string, depth int) string {
	rest, fragment, hasFragment := strings.Cut(text, "#")
	path, raw, hasQuery := strings.Cut(rest, "?")
	if !hasQuery && !strings.ContainsAny(path, "/;") && strings.Contains(path, "=") { // a form
		return query(path, "&", depth)
	}
	if strings.Contains(path, "@") {
		path = userinfo.ReplaceAllString(path, "${1}***@")
	}
	path = matrix.ReplaceAllStringFunc(path, func(part string) string {
		if name, value, _ := strings.Cut(part, "="); Secret(name) {
			return name + "=" + Mask(value)
		}
		return part
	})
	path = shapes(path)
	if hasQuery {
		path += "?" + query(raw, "&", depth)
	}
	if hasFragment {
		path += "#" + query(fragment, "&", depth)
	}
	return path
}

var (
	address  = regexp.MustCompile(`[^\s<>"',]*(?:[?#;][^\s<>"']*=|//[^\s<>"']*@)[^\s<>"']*`)
	scheme   = regexp.MustCompile(`(?i)\b(bearer|basic|digest|negotiate|apikey)( +)([^\s,"]+)`)
	pair     = regexp.MustCompile(`([A-Za-z0-9_.%-]+)=("[^"]*"|[^\s&;,"<>]+)`)
	prefixes = []string{"frk_", "whsec_", "sk_", "rk_", "gh", "glpat-", "xox", "sk-", "AKIA", "eyJ"}
	shape    = regexp.MustCompile(`\b(?:frk_|whsec_|[sr]k_(?:live|test)_` +
		`|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-|AKIA)[A-Za-z0-9_+/=-]{12,}` +
		`|\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]*`)
)

// Text masks likely secrets in any text: credentials, keys with a well-known form, and secrets in addresses.
func Text(text string) string {
	if strings.Contains(text, "=") || strings.Contains(text, "@") {
		text = address.ReplaceAllStringFunc(text, URL)
		text = pair.ReplaceAllStringFunc(text, func(found string) string {
			if name, value, _ := strings.Cut(found, "="); Secret(name) {
				return name + "=" + Mask(value)
			}
			return found
		})
	}
	if strings.Contains(text, " ") {
		text = scheme.ReplaceAllStringFunc(text, func(found string) string {
			at := strings.LastIndexByte(found, ' ') + 1
			return found[:at] + Mask(found[at:])
		})
	}
	return shapes(text)
}

func shapes(text string) string {
	if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.Contains(text, prefix) }) {
		return shape.ReplaceAllStringFunc(text, Mask)
	}
	return text
}

// Keep returns a text in its recorded form: masked and shortened. The result does not share memory with text.
func Keep(text string) string { return bounded(text, MaxText, Text) }

// KeepURL is like Keep, for an address or the target of a request.
func KeepURL(text string) string { return bounded(text, MaxText, URL) }

// KeepQuery is like Keep, for a query.
func KeepQuery(raw string) string {
	return bounded(Query(raw), MaxText, func(shown string) string { return shown })
}

// bounded masks a text and shortens it to the given size. A hash of the whole text replaces the rest.
func bounded(text string, most int, mask func(string) string) string {
	head := text[:min(len(text), most+slack)]
	shown := mask(head)
	if len(head) == len(text) && len(shown) <= most {
		return strings.Clone(shown)
	}
	whole := "..." + sum(text, 8)
	return strings.ToValidUTF8(shown[:min(len(shown), most-len(whole))], "") + whole
}
