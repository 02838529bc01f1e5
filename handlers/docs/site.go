package docs

import (
	"bytes"
	"fmt"
	"net/url"
	"sync"
)

// Site has the pages of a service. They contain its public URL.
type Site struct {
	publicURL string
	docs      func() Page
	problems  func() map[string][]byte
}

// NewSite returns the pages of the service at a URL without a trailing slash. They are rendered on first use.
func NewSite(publicURL string) *Site {
	return &Site{
		publicURL: publicURL,
		docs:      sync.OnceValue(func() Page { return PageOf("ForgeRun API", "openapi.yaml") }),
		problems:  sync.OnceValue(func() map[string][]byte { return problemPages(publicURL) }),
	}
}

// Docs returns the interactive page of the OpenAPI document.
func (s *Site) Docs() Page { return s.docs() }

// OpenAPI returns the OpenAPI document with the service's own address.
func (s *Site) OpenAPI() []byte {
	return s.below(OpenAPI, "  - url: /\n", "  - url: %s\n")
}

// AsyncAPI returns the document of the event streams with the service's own address.
func (s *Site) AsyncAPI() []byte {
	const server = "    host: \"{host}\"\n    protocol: http\n"
	return s.below(AsyncAPI(), server, server+"    pathname: %s\n")
}

// below adapts a document's server address if the service is below a path.
func (s *Site) below(document []byte, server, there string) []byte {
	public, err := url.Parse(s.publicURL)
	if err != nil || public.Path == "" {
		return document
	}
	return bytes.Replace(document, []byte(server), fmt.Appendf(nil, there, public.EscapedPath()), 1)
}

// Problem returns the page of a problem type URI.
func (s *Site) Problem(slug string) (page []byte, ok bool) {
	page, ok = s.problems()[slug]
	return page, ok
}
