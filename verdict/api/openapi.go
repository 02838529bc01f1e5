package api

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/verdict"
)

type document struct {
	OpenAPI string `yaml:"openapi"`
	Servers []struct {
		URL string `yaml:"url"`
	} `yaml:"servers"`
	Paths map[string]map[string]yaml.Node `yaml:"paths"`
}

type documented struct {
	Parameters []struct {
		Name string `yaml:"name"`
		In   string `yaml:"in"`
	} `yaml:"parameters"`
	Callbacks map[string]yaml.Node `yaml:"callbacks"`
	Responses map[string]struct {
		Headers map[string]yaml.Node `yaml:"headers"`
		Content map[string]yaml.Node `yaml:"content"`
	} `yaml:"responses"`
}

// AddOpenAPI adds operations from an OpenAPI document to the description. An operation with a 202 response or callbacks is a submission.
// A GET of an event stream is a stream. A GET one segment below a submission's path is a read.
func (a *API) AddOpenAPI(text []byte) error {
	var d document
	if err := yaml.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("the OpenAPI document cannot be read: %w", err)
	}
	if d.OpenAPI == "" || len(d.Paths) == 0 {
		return errors.New("the document is not OpenAPI 3, or has no paths")
	}
	found, reads := map[verdict.Role][]operation{}, map[string]operation{}
	for path, operations := range d.Paths {
		for method, node := range operations {
			var o documented
			if node.Decode(&o) != nil { // not an operation: parameters or a summary of the path
				continue
			}
			method = strings.ToUpper(method)
			role, key := o.role(method)
			one := operation{role, method, strings.Split(strings.TrimPrefix(d.base()+path, "/"), "/")}
			if role == verdict.Read {
				reads[path] = one
			} else if role != "" {
				found[role] = append(found[role], one)
			}
			if key != "" && role == verdict.Submit && !slices.Contains(a.Key, headerPlace+key) {
				a.Key = append(a.Key, headerPlace+key)
			}
		}
	}
	for path, read := range reads { // keep only reads below the path of a submission
		parent := strings.Split(strings.TrimPrefix(d.base()+path[:strings.LastIndexByte(path, '/')], "/"), "/")
		if slices.ContainsFunc(found[verdict.Submit], func(o operation) bool { return slices.Equal(o.segments, parent) }) {
			read.segments[len(read.segments)-1] = "{id}"
			found[verdict.Read] = append(found[verdict.Read], read)
		}
	}
	for _, role := range []verdict.Role{verdict.Stream, verdict.Submit, verdict.Read} {
		if !a.Described(role) {
			a.operations = append(a.operations, found[role]...)
		}
	}
	if len(a.Job.ID) == 0 && len(a.Job.Address) == 0 {
		a.Job.ID = []string{"/id", "/job_id", "/jobId", "/name"}
	}
	return nil
}

func (d *document) base() string {
	if len(d.Servers) == 0 {
		return ""
	}
	_, rest, ok := strings.Cut(d.Servers[0].URL, "://")
	if !ok {
		rest = "x" + d.Servers[0].URL
	}
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		return strings.TrimSuffix(rest[at:], "/")
	}
	return ""
}

// role guesses the role of an operation. `key` is the name of the operation's header for the idempotency key.
func (o *documented) role(method string) (role verdict.Role, key string) {
	for _, p := range o.Parameters {
		if p.In == "header" && strings.Contains(strings.ToLower(p.Name), "idempotency") {
			key = p.Name
		}
	}
	_, accepted := o.Responses["202"]
	if method != "GET" {
		if (accepted || len(o.Callbacks) > 0) && method != "DELETE" {
			return verdict.Submit, key
		}
		return "", ""
	}
	for _, response := range o.Responses {
		if _, ok := response.Content[eventStream]; ok {
			return verdict.Stream, ""
		}
	}
	return verdict.Read, ""
}

const eventStream = "text/event-stream"
