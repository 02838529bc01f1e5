package client

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/dunglas/httpsfv"
)

// mustCover are the components that a signature has to cover, besides all ce- headers.
var mustCover = []string{"@method", "@target-uri", "content-type", "content-digest", "webhook-id"}

// message is the request that was signed.
type message struct {
	method, target string
	header         http.Header
}

// signatureBase is the signed text (RFC 9421, section 2.5). A signature that does not cover the components in must is an error.
func (m message) signatureBase(input httpsfv.InnerList, must []string) ([]byte, error) {
	covered := map[string]bool{}
	var base strings.Builder
	for _, component := range input.Items {
		name, ok := component.Value.(string)
		if !ok || len(component.Params.Names()) > 0 || covered[name] {
			return nil, refused("a component of the signature is not known")
		}
		value, err := m.component(name)
		if err != nil {
			return nil, err
		}
		covered[name] = true
		fmt.Fprintf(&base, "\"%s\": %s\n", name, value)
	}
	for _, name := range must {
		if !covered[name] {
			return nil, refused("the signature does not cover " + name)
		}
	}
	for name := range m.header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "ce-") && !covered[name] {
			return nil, refused("the signature does not cover " + line(name))
		}
	}
	params, err := httpsfv.Marshal(input)
	if err != nil {
		return nil, refused("Signature-Input: " + err.Error())
	}
	base.WriteString(`"@signature-params": ` + params)
	return []byte(base.String()), nil
}

func (m message) component(name string) (string, error) {
	switch {
	case name == "@method":
		return m.method, nil
	case name == "@target-uri":
		return m.target, nil
	case name == "@authority" || name == "@path":
		u, err := url.Parse(m.target)
		if err != nil {
			return "", fmt.Errorf("client: the target URI: %w", err)
		}
		if name == "@path" {
			return u.EscapedPath(), nil
		}
		return strings.ToLower(u.Host), nil
	case strings.HasPrefix(name, "@") || name != strings.ToLower(name) || m.header.Values(name) == nil:
		return "", refused("there is no component " + line(name))
	}
	return joined(m.header, name), nil
}

// signedURI writes a URL as the service signs it: scheme and host in lower case, without the scheme's default port, the path / if there
// is none, no fragment, ASCII only. Text that is not a URL is unchanged, and matches nothing.
func signedURI(target string) string {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return target
	}
	host := strings.TrimSuffix(strings.ToLower(u.Host), map[string]string{"http": ":80", "https": ":443"}[u.Scheme])
	var query strings.Builder
	for i := range len(u.RawQuery) {
		if b := u.RawQuery[i]; b < 0x80 {
			query.WriteByte(b)
		} else {
			fmt.Fprintf(&query, "%%%02X", b)
		}
	}
	u.RawQuery = query.String()
	return u.Scheme + "://" + host + u.RequestURI()
}
