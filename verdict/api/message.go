package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict/wire"
)

const (
	headerPlace = "header:"
	queryPlace  = "query:"
)

// Message is the part of a request or response that has ids, keys or states.
type Message struct {
	URL    *url.URL
	Header http.Header
	Body   any // decoded JSON document; nil if none
}

// Decode decodes a JSON document. It returns nil for other bodies.
func Decode(body []byte) (document any) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&document) != nil {
		return nil
	}
	return document
}

// Text returns the first non-empty value that the message has at `places` (see Job), or "".
func (m *Message) Text(places ...string) string {
	for _, place := range places {
		if name, ok := strings.CutPrefix(place, headerPlace); ok {
			if value := m.Header.Get(name); value != "" {
				return value
			}
			continue
		}
		if name, ok := strings.CutPrefix(place, queryPlace); ok {
			if value := m.URL.Query().Get(name); value != "" {
				return value
			}
			continue
		}
		switch value := at(m.Body, place).(type) {
		case string:
			if value != "" {
				return value
			}
		case json.Number:
			return value.String()
		}
	}
	return ""
}

func at(document any, pointer string) any {
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, _ := document.(map[string]any)
		document = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(token)]
	}
	return document
}

// KeyOf returns the idempotency key of a request.
func (a *API) KeyOf(m *Message) string { return m.Text(a.Key...) }

// CorrelationOf returns the correlation id of a request.
func (a *API) CorrelationOf(m *Message) string { return m.Text(a.Correlation...) }

// Names reports whether the API uses this header for the idempotency key or the correlation id.
func (a *API) Names(header string) bool {
	return slices.ContainsFunc(slices.Concat(a.Key, a.Correlation), func(place string) bool {
		return strings.EqualFold(place, headerPlace+header)
	})
}

// addresses lists the headers that may contain a job's address, the most specific first. Azure-AsyncOperation is the older name of
// Operation-Location.
var addresses = []string{"Operation-Location", "Azure-AsyncOperation", "Location", "Content-Location"}

// Made returns the address or the id of the job that a request created, according to the response m. `described` reports whether
// the API's description names the request as a submission. If not, Made accepts only standard responses, such as 202 with Location.
func (a *API) Made(m *Message, status int, described bool) (address *url.URL, id string) {
	if status < 200 || status > 299 {
		return nil, ""
	}
	if described {
		if id = m.Text(a.Job.ID...); id != "" {
			return nil, id
		}
		if text := m.Text(a.Job.Address...); text != "" {
			return m.resolve(text), ""
		}
	}
	async := strings.Contains(strings.ToLower(m.Header.Get("Preference-Applied")), "respond-async")
	if status != http.StatusAccepted && !async && m.Header.Get("Operation-Location") == "" && m.Header.Get("Azure-AsyncOperation") == "" &&
		!described {
		return nil, ""
	}
	for _, name := range addresses {
		if text := m.Header.Get(name); text != "" {
			return m.resolve(text), ""
		}
	}
	return m.link("status", "monitor"), ""
}

func (m *Message) link(relations ...string) *url.URL {
	for _, header := range m.Header.Values("Link") {
		for link := range wire.Links(header) {
			for parameter := range strings.SplitSeq(link.Parameters, ";") {
				name, value, _ := strings.Cut(strings.TrimSpace(parameter), "=")
				if !strings.EqualFold(strings.TrimSpace(name), "rel") {
					continue
				}
				for relation := range strings.FieldsSeq(strings.Trim(strings.TrimSpace(value), `"`)) {
					if slices.Contains(relations, relation) {
						return m.resolve(link.Target)
					}
				}
			}
		}
	}
	return nil
}

func (m *Message) resolve(address string) *url.URL {
	parsed, err := url.Parse(address)
	if err != nil {
		return nil
	}
	return m.URL.ResolveReference(parsed)
}

// Result returns the URL of the job's result if the response is a 303 redirect, otherwise nil.
func (m *Message) Result(status int) *url.URL {
	if location := m.Header.Get("Location"); status == http.StatusSeeOther && location != "" {
		return m.resolve(location)
	}
	return nil
}

// State is the state of a job in a document.
type State struct {
	Known     bool
	Final     bool
	Permanent bool   // the job failed, and a retry would not help
	Name      string // name of the state, for people
}

// finals lists final states of known APIs, in lower case: the async problem details draft, ForgeRun, Azure, Kubernetes, OpenAI and
// others.
var finals = []string{
	"succeeded", "success", "successful", "completed", "complete", "completed_with_errors", "done", "finished", "failed", "failure",
	"error", "errored", "timed_out", "timedout", "canceled", "cancelled", "aborted", "expired", "terminated",
}

var known = []string{
	"/jobStatus", "/state", "/status", "/properties/provisioningState", "/properties/status", "/done", "/data/attributes/status",
}

// StateOf reads the state of a job from a document.
func (a *API) StateOf(document any) (s State) {
	places := a.Job.State
	if len(places) == 0 {
		places = known
	}
	for _, place := range places {
		if s = a.state(at(document, place)); s.Known {
			break
		}
	}
	if !s.Known {
		return State{}
	}
	for _, place := range []string{"/retryable", "/failure/retryable", "/error/retryable"} {
		if retryable, ok := at(document, place).(bool); ok && !retryable && s.Final && strings.HasPrefix(strings.ToLower(s.Name), "fail") {
			s.Permanent = true
		}
	}
	return s
}

func (a *API) state(value any) State {
	switch v := value.(type) {
	case string:
		return State{Known: v != "", Final: a.isFinal(v), Name: v}
	case bool: // Google's done
		return State{Known: true, Final: v, Name: map[bool]string{true: "done", false: "not done"}[v]}
	case map[string]any: // Kubernetes' status
		conditions, ok := v["conditions"].([]any)
		if !ok {
			return State{Known: len(a.Job.State) > 0, Name: "without a condition"}
		}
		for _, c := range conditions {
			name, _ := at(c, "/type").(string)
			if at(c, "/status") == "True" && a.isFinal(name) {
				return State{Known: true, Final: true, Name: name}
			}
		}
		return State{Known: true, Name: "without a final condition"}
	}
	return State{}
}

func (a *API) isFinal(state string) bool {
	is := func(final string) bool { return strings.EqualFold(final, state) }
	if len(a.Job.Final) > 0 {
		return slices.ContainsFunc(a.Job.Final, is)
	}
	return slices.ContainsFunc(finals, is)
}

// Shape describes how documents show jobs. The function `job` looks up a job by its id. `open` is the state that a fault shows for an
// ended job; "" means "processing".
func (a *API) Shape(open string, job func(id string) (string, bool)) wire.Shape {
	return wire.Shape{
		Things: []wire.Thing{{
			ID:    members(a.Job.ID, "/id", "/job_id", "/jobId", "/name", "/operationId"),
			State: members(a.Job.State, known...),
			Open:  cmp.Or(open, "processing"), Ends: a.Job.Final,
		}},
		Final: func(v any) bool { return a.state(v).Final },
		Job:   job,
	}
}

// members converts JSON Pointers to paths of members. For /a/b it returns a/b and b: entries of a list may have the member b without the
// object a around b. If `places` has no JSON Pointer, members uses `usual`.
func members(places []string, usual ...string) (paths []string) {
	if !slices.ContainsFunc(places, func(place string) bool { return strings.HasPrefix(place, "/") }) {
		places = usual
	}
	for _, place := range places {
		for path, ok := strings.CutPrefix(place, "/"); ok; _, path, ok = strings.Cut(path, "/") {
			paths = append(paths, path)
		}
	}
	return paths
}
