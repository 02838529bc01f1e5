package docs

import (
	"bytes"
	"fmt"
	"net/url"
	"sync"
)

// Site has the pages of a service at an address of its own, which they name in
// what is to be copied.
type Site struct {
	publicURL string
	docs      func() Page
	problems  func() map[string][]byte
}

// NewSite makes the pages of the service at a URL without a slash at its end.
// They are rendered when they are first asked for.
func NewSite(publicURL string) *Site {
	return &Site{
		publicURL: publicURL,
		docs:      sync.OnceValue(func() Page { return PageOf("ForgeRun API", "openapi.yaml") }),
		problems:  sync.OnceValue(func() map[string][]byte { return problemPages(publicURL) }),
	}
}

// Docs is OpenAPI as a page to read and to try.
func (s *Site) Docs() Page { return s.docs() }

// OpenAPI describes the API at its own address.
func (s *Site) OpenAPI() []byte {
	return s.below(OpenAPI, "  - url: /\n", "  - url: %s\n")
}

// AsyncAPI describes its event streams there.
func (s *Site) AsyncAPI() []byte {
	const server = "    host: \"{host}\"\n    protocol: http\n"
	return s.below(AsyncAPI(), server, server+"    pathname: %s\n")
}

// below returns a document whose server is below a path, if the service is.
func (s *Site) below(document []byte, server, there string) []byte {
	public, err := url.Parse(s.publicURL)
	if err != nil || public.Path == "" {
		return document
	}
	return bytes.Replace(document, []byte(server), fmt.Appendf(nil, there, public.EscapedPath()), 1)
}

// Problem gives the page that a problem type URI points to.
func (s *Site) Problem(slug string) (page []byte, ok bool) {
	page, ok = s.problems()[slug]
	return page, ok
}
