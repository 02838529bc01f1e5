package operator

import (
	"net/http"
	"strings"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

// No answer of this API has an entity tag or a Last-Modified: a condition can only ask whether there is something, and those about
// times are ignored (RFC 9110, sections 13.1.3 and 13.1.4).

const mimeJSON = "application/json"

// shownBy gives for the path of each change the route that shows what the change is about: that of the same path, or of the nearest one
// above.
func shownBy(routes []route) map[string]*route {
	reads, shown := map[string]*route{}, map[string]*route{}
	for i, rt := range routes {
		if rt.method == http.MethodGet {
			reads[rt.path] = &routes[i]
		}
	}
	for _, rt := range routes {
		for path := rt.path; path != "" && shown[rt.path] == nil; path = path[:strings.LastIndexByte(path, '/')] {
			shown[rt.path] = reads[path]
		}
	}
	return shown
}

// checkConditions refuses a change whose answer is not wanted as it would be, or whose conditions do not hold for what it is about.
func (c *call) checkConditions() error {
	if header.Excludes(c.list("Accept"), mimeJSON) {
		return notAcceptable(mimeJSON)
	}
	matches := c.Header["If-None-Match"] != nil && header.MatchesETag(c.list("If-None-Match"), "")
	if !c.unmatched() && !matches {
		return nil // whether it is there, the change finds out by itself
	}
	if _, err := c.api.shown[c.route.path].handle(c); err != nil {
		return err
	}
	if c.unmatched() {
		return errUnmatched
	}
	return httpError{status: http.StatusPreconditionFailed,
		cause: job.Errorf(job.CodeMalformed, "If-None-Match names what is there. Nothing was done.")}
}

// unmatched reports whether If-Match asks for an entity tag.
func (c *call) unmatched() bool {
	return c.Header["If-Match"] != nil && !header.MatchesStrongly(c.list("If-Match"), "")
}

var errUnmatched = httpError{status: http.StatusPreconditionFailed, cause: job.Errorf(job.CodeMalformed,
	"If-Match does not name what is there. Nothing was done. Nothing here has an entity tag: send the request without If-Match.")}

// checkAnswer refuses an answer that is not the one that the request wants.
func (c *call) checkAnswer(a answer) error {
	switch {
	case c.unmatched():
		return errUnmatched
	case header.Excludes(c.list("Accept"), a.mime):
		return notAcceptable(a.mime)
	}
	return nil
}

func notAcceptable(mime string) error {
	return job.Errorf(job.CodeNotAcceptable, "The answer would be %[1]s, which the Accept header excludes. Send Accept: %[1]s, or none.", mime)
}

// list gives a header that is a comma-separated list, all its lines joined.
func (c *call) list(name string) string { return strings.Join(c.Header.Values(name), ",") }
