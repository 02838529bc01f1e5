// Package api describes HTTP APIs for long-running work: which requests submit a job, read it, or read its events; how jobs are named;
// and which states are final. If a description leaves something out, a standard applies, such as a 202 response with Location.
package api

import (
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/internal/yamlfile"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// API is a description of an HTTP API, as read from its YAML file.
type API struct {
	Name string `yaml:"name,omitempty"`
	// Operations by role, each as "METHOD /path". {id} matches the job's id; {name...} at the end matches all remaining segments.
	Submit  []string `yaml:"submit,omitempty"`
	Read    []string `yaml:"read,omitempty"`
	Outcome []string `yaml:"outcome,omitempty"`
	Stream  []string `yaml:"stream,omitempty"`
	List    []string `yaml:"list,omitempty"`
	Retry   []string `yaml:"retry,omitempty"`
	Reset   []string `yaml:"reset,omitempty"`
	Job     Job      `yaml:"job,omitempty"`

	Key         []string         `yaml:"key,omitempty"`         // where requests have the idempotency key; syntax as in Job
	Correlation []string         `yaml:"correlation,omitempty"` // where requests have the correlation id, which is the same in all tries
	Repeatable  []string         `yaml:"repeatable,omitempty"`  // operations that are safe to repeat without a key
	Errors      map[int]Document `yaml:"errors,omitempty"`      // error responses that faults send, by status; key 0: all other statuses
	Rules       []string         `yaml:"rules,omitempty"`

	operations []operation
}

// Job describes how the API identifies jobs and shows their states. ID, Address and State contain JSON Pointers into the body,
// "header:NAME" or "query:NAME".
type Job struct {
	ID      []string `yaml:"id,omitempty"`      // where the response to a submission has the job's id
	Address []string `yaml:"address,omitempty"` // where the response has the job's URL; for APIs without job ids
	State   []string `yaml:"state,omitempty"`
	Final   []string `yaml:"final,omitempty"` // final states; case is ignored
}

// Document is a body with its media type.
type Document struct {
	ContentType string `yaml:"content_type,omitempty"`
	Body        string `yaml:"body,omitempty"`
}

type operation struct {
	role     verdict.Role
	method   string
	segments []string
}

//go:embed apis/*.yaml
var ready embed.FS

// Schema is the JSON schema of descriptions, for editors.
//
//go:embed schema.json
var Schema string

// Names returns the names of the ready-made descriptions.
func Names() (names []string) {
	files, _ := fs.Glob(ready, "apis/*.yaml")
	for _, file := range files {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(file, "apis/"), ".yaml"))
	}
	return names
}

// Load reads a description: a ready-made one by name, or a file. If name is empty, the description is empty, and only standards apply.
func Load(name string) (*API, error) {
	if name == "" {
		return Parse(nil)
	}
	text, err := ready.ReadFile("apis/" + name + ".yaml")
	if err != nil {
		if text, err = os.ReadFile(name); err != nil {
			return nil, fmt.Errorf("%q is not one of the built-in descriptions %s, and cannot be read as a file: %w",
				name, strings.Join(Names(), ", "), err)
		}
	}
	a, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// Parse reads a description from YAML.
func Parse(text []byte) (*API, error) {
	a := &API{}
	if err := yamlfile.Decode(text, a); err != nil {
		return nil, err
	}
	for _, of := range []struct {
		role verdict.Role
		all  []string
	}{
		{verdict.Retry, a.Retry}, {verdict.Outcome, a.Outcome}, {verdict.Stream, a.Stream}, {verdict.Submit, a.Submit},
		{verdict.Read, a.Read}, {verdict.List, a.List}, {verdict.Reset, a.Reset},
	} {
		for _, text := range of.all {
			o, err := parseOperation(of.role, text)
			if err != nil {
				return nil, err
			}
			a.operations = append(a.operations, o)
		}
	}
	if len(a.Key) == 0 {
		a.Key = []string{"header:Idempotency-Key"}
	}
	if len(a.Correlation) == 0 {
		a.Correlation = []string{"header:X-Correlation-ID"}
	}
	for _, rule := range a.Rules {
		if !slices.Contains(verdict.IDs(), rule) {
			return nil, fmt.Errorf("rules: unknown rule %q; the rules are %s", rule, strings.Join(verdict.IDs(), ", "))
		}
	}
	return a, a.checkPlaces()
}

func parseOperation(role verdict.Role, text string) (operation, error) {
	method, path, ok := strings.Cut(text, " ")
	if !ok || method != strings.ToUpper(method) || !strings.HasPrefix(path, "/") {
		return operation{}, fmt.Errorf("%s: %q must be a method and a path, such as POST /v1/orders", role, text)
	}
	return operation{role, method, strings.Split(path[1:], "/")}, nil
}

func (a *API) checkPlaces() error {
	for _, place := range slices.Concat(a.Job.ID, a.Job.Address, a.Job.State, a.Key, a.Correlation) {
		if !strings.HasPrefix(place, "/") && !strings.HasPrefix(place, headerPlace) && !strings.HasPrefix(place, queryPlace) {
			return fmt.Errorf("%q must be a JSON Pointer such as /status, or header:NAME, or query:NAME", place)
		}
	}
	for _, name := range a.Repeatable {
		if !slices.Contains([]string{"submit", "retry"}, name) {
			return fmt.Errorf("repeatable: %q must be submit or retry", name)
		}
	}
	return nil
}

// RuleIDs returns the ids of the rules that apply to clients of the API by default.
func (a *API) RuleIDs() (ids []string) {
	standard := verdict.StandardIDs()
	for _, id := range verdict.IDs() {
		if slices.Contains(standard, id) || slices.Contains(a.Rules, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Faults tells fault profiles the names of a described API's operations. The name of an operation is its role.
var Faults = fault.API{Refuses: true, Lists: []string{string(verdict.List)}, Operations: map[fault.Use][]string{
	fault.Submissions: {string(verdict.Submit)}, fault.Lookups: {string(verdict.Read), string(verdict.List)},
	fault.Outcomes: {string(verdict.Outcome)}, fault.Streams: {string(verdict.Stream)},
}}

// Match returns the role of a request and the job id in its path. If no operation of the description matches, `ok` is false.
func (a *API) Match(r *http.Request) (role verdict.Role, id string, ok bool) {
	for _, o := range a.operations {
		if o.method != r.Method {
			continue
		}
		if id, ok = o.match(strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")); ok {
			return o.role, id, true
		}
	}
	return "", "", false
}

// ReadPath returns the path for reading a submitted job, or "" if the description has none. Other placeholders than {id} get their values
// from `submission`, the path of the submission.
func (a *API) ReadPath(submission, id string) string {
	sent := strings.Split(strings.TrimPrefix(submission, "/"), "/")
	names := map[string]string{"{id}": url.PathEscape(id), "{id...}": id}
	for _, o := range a.operations {
		if _, ok := o.match(sent); o.role != verdict.Submit || !ok {
			continue
		}
		for i, name := range o.segments {
			if strings.HasPrefix(name, "{") && strings.HasSuffix(name, "}") && names[name] == "" && i < len(sent) {
				names[name] = sent[i]
			}
		}
	}
	for _, o := range a.operations {
		if o.role != verdict.Read || o.method != http.MethodGet {
			continue
		}
		if path := o.fill(names); path != "" {
			return path
		}
	}
	return ""
}

// fill puts the values into the operation's path. It returns "" if a value is missing, or if the path has no {id}.
func (o *operation) fill(names map[string]string) string {
	path, named := "", false
	for _, segment := range o.segments {
		if name, suffix, ok := strings.Cut(segment, "}"); ok && strings.HasPrefix(name, "{") {
			named = named || strings.HasPrefix(name, "{id")
			if segment = names[name+"}"]; segment == "" {
				return ""
			}
			segment += suffix
		}
		path += "/" + segment
	}
	if !named {
		return ""
	}
	return path
}

// Is reports whether a request matches an operation in the syntax of descriptions: a method and a path, such as GET /v1/orders/{id}.
func Is(r *http.Request, text string) bool {
	o, err := parseOperation("", text)
	if err != nil || o.method != r.Method {
		return false
	}
	_, ok := o.match(strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/"))
	return ok
}

// MayRepeat reports whether operations of the role are safe to repeat without a key.
func (a *API) MayRepeat(role verdict.Role) bool { return slices.Contains(a.Repeatable, string(role)) }

// Described reports whether the description has operations of the role.
func (a *API) Described(role verdict.Role) bool {
	return slices.ContainsFunc(a.operations, func(o operation) bool { return o.role == role })
}

func (o *operation) match(segments []string) (id string, ok bool) {
	for i, want := range o.segments {
		name, isName := strings.CutPrefix(want, "{")
		if isName && strings.HasSuffix(name, "...}") {
			rest := strings.Join(segments[min(i, len(segments)):], "/")
			if strings.HasPrefix(name, "id.") {
				id = rest
			}
			return id, rest != ""
		}
		if i >= len(segments) {
			return "", false
		}
		switch name, suffix, _ := strings.Cut(name, "}"); {
		case !isName && segments[i] != want:
			return "", false
		case isName && (!strings.HasSuffix(segments[i], suffix) || segments[i] == suffix):
			return "", false
		case isName && name == "id":
			id = strings.TrimSuffix(segments[i], suffix)
		}
	}
	return id, len(segments) == len(o.segments)
}
