package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/redact"
)

const (
	maxGuesses = 20  // operations that may submit jobs
	maxCreated = 500 // remembered resources that these operations created
	maxStates  = 20  // states of the resources of one operation
)

// guesses collects responses to POSTs that name a resource, and later reads of the resource. With this data, the proxy guesses a
// description of the API.
type guesses struct {
	operations []*guessed
	created    map[string]*guessed // key: id or Location of a resource; value: the operation that created it
}

// guessed is an operation that may submit jobs.
type guessed struct {
	method, path string // path: {a}, {b} and so on replace segments that look like ids
	status       int
	place        string            // place of the id: a JSON Pointer or header:Location
	read         string            // path that reads a created resource; empty if unknown
	state        string            // place of the state in a response to a read; empty if unknown
	latest       map[string]string // latest states of created resources by id
	passing      map[string]bool   // states that a later state replaced, so they are not final
}

// idNames lists common names of the id in a response, the most common first.
var idNames = []string{"id", "job_id", "jobId", "task_id", "taskId", "operation_id", "operationId", "request_id", "requestId",
	"uuid", "name"}

var stateNames = []string{"status", "state", "jobStatus", "job_status", "phase", "done"}

// idOf finds the id in a response to a POST. It searches the document, then the objects in the document's members, and then the header
// Location. `place` says where the id is (see guessed.place).
func idOf(document any, h http.Header, at *url.URL) (id, place string) {
	object, _ := document.(map[string]any)
	look := func(object map[string]any, under string) bool {
		for _, name := range idNames {
			if id = (&api.Message{Body: object}).Text("/" + name); id != "" {
				place = under + "/" + name
				return true
			}
		}
		return false
	}
	if look(object, "") {
		return id, place
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if inner, ok := object[name].(map[string]any); ok && look(inner, "/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name)) {
			return id, place
		}
	}
	if location, err := at.Parse(h.Get("Location")); err == nil && h.Get("Location") != "" {
		return location.RequestURI(), "header:Location"
	}
	return "", ""
}

func stateOf(document any) (state, place string) {
	object, _ := document.(map[string]any)
	for _, under := range append([]string{""}, slices.Sorted(maps.Keys(object))...) {
		inner, prefix := object, ""
		if under != "" {
			inner, _ = object[under].(map[string]any)
			prefix = "/" + under
		}
		for _, name := range stateNames {
			switch value := inner[name].(type) {
			case string:
				return value, prefix + "/" + name
			case bool:
				return fmt.Sprint(value), prefix + "/" + name
			}
		}
	}
	return "", ""
}

func (g *guesses) see(r *http.Request, x *verdict.Exchange, h http.Header, document any) {
	switch {
	case r.Method == http.MethodPost && x.Status >= 200 && x.Status <= 202:
		id, place := idOf(document, h, r.URL)
		if x.Created = redact.KeepURL(id); id != "" {
			g.posted(r, x.Status, id, place)
		}
	case r.Method == http.MethodGet && x.Status >= 200 && x.Status < 300:
		g.noteRead(r, document)
	}
}

func (g *guesses) posted(r *http.Request, status int, id, place string) {
	path := template(r.URL.EscapedPath())
	i := slices.IndexFunc(g.operations, func(o *guessed) bool { return o.path == path && o.place == place })
	if i < 0 {
		if len(g.operations) == maxGuesses {
			return
		}
		i = len(g.operations)
		g.operations = append(g.operations, &guessed{
			method: r.Method, path: path, status: status, place: place, latest: map[string]string{}, passing: map[string]bool{},
		})
	}
	if g.created == nil {
		g.created = map[string]*guessed{}
	}
	if len(g.created) < maxCreated {
		g.created[id] = g.operations[i]
	}
}

// noteRead learns the path and the state from a read of a created resource.
func (g *guesses) noteRead(r *http.Request, document any) {
	if o := g.created[r.URL.RequestURI()]; o != nil {
		o.noteState(r.URL.RequestURI(), document)
		return
	}
	segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, segment := range segments {
		id, err := url.PathUnescape(segment)
		o := g.created[id]
		if err != nil || o == nil {
			continue
		}
		rest := segments[i+1:]
		if o.read == "" || len(rest) == 0 { // prefer a path that ends with the id, because such a path reads the resource itself
			before := strings.TrimSuffix(template("/"+strings.Join(segments[:i], "/")), "/")
			o.read = strings.Join(append([]string{before, "{id}"}, rest...), "/")
		}
		o.noteState(id, document)
		return
	}
}

func (o *guessed) noteState(id string, document any) {
	state, place := stateOf(document)
	last, known := o.latest[id]
	if state == "" || len(state) > maxDescribed || len(o.passing) > maxStates || !known && len(o.latest) == maxCreated {
		return
	}
	if known && last != state {
		o.passing[last] = true
	}
	o.state, o.latest[id] = place, state
}

const maxDescribed = 100 // maximum length of a state

var looksLikeID = regexp.MustCompile(`^([0-9]+|[0-9a-fA-F-]{16,}|[A-Za-z]+_[0-9A-Za-z]{8,})$`)

func template(path string) string {
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		if looksLikeID.MatchString(segment) {
			segments[i] = "{" + string(rune('a'+i%26)) + "}"
		}
	}
	return strings.Join(segments, "/")
}

// guess returns a description of the API, or nil if no response to a POST named a resource. If the resources of some operations were read
// or have a Location, guess ignores the other operations.
func (g *guesses) guess() *verdict.Guess {
	all := slices.DeleteFunc(slices.Clone(g.operations), func(o *guessed) bool { return o.read == "" && o.place != "header:Location" })
	if len(all) == 0 {
		all = g.operations
	}
	if len(all) == 0 {
		return nil
	}
	description := api.API{Name: "Guessed API"}
	finals := map[string]bool{}
	for _, o := range all {
		description.Submit = append(description.Submit, o.method+" "+o.path)
		if o.place == "header:Location" {
			description.Job.Address = add(description.Job.Address, o.place)
		} else {
			description.Job.ID = add(description.Job.ID, o.place)
		}
		if o.read != "" {
			description.Read = add(description.Read, "GET "+o.read)
		}
		if o.state != "" {
			description.Job.State = add(description.Job.State, o.state)
		}
		for _, state := range o.latest {
			if len(o.passing) > 0 && !o.passing[state] { // a final state is never followed by another state
				finals[state] = true
			}
		}
	}
	description.Job.Final = slices.Sorted(maps.Keys(finals))
	text, err := yaml.Marshal(&description)
	if err != nil { // impossible: the description contains only strings
		return nil
	}
	o := all[0]
	name := "{" + o.place[strings.LastIndexAny(o.place, "/:")+1:] + "}"
	return &verdict.Guess{
		Seen: fmt.Sprintf("%s %s answered %d with %s", o.method, redact.KeepURL(o.path), o.status, name),
		YAML: "# " + GuessHeader + "\n# Check it: under final, keep only states that never change. Delete operations that submit no job.\n" +
			string(text),
	}
}

// GuessHeader is the first line of a guessed description.
const GuessHeader = "Guessed by forgerun from the traffic of one session; see docs/how-to/any-api.md."

func add(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}
