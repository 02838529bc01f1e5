package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Shape describes how documents of an API show jobs: as objects with an id and a state, at any depth.
type Shape struct {
	Things []Thing                              // kinds of objects; the first that matches applies
	Final  func(state any) bool                 // reports whether a state is final
	Job    func(id string) (job string, _ bool) // returns the job with an id, or false if there is none
}

// Thing is a kind of object with an id and a state. It lists possible paths of members, such as "status" or "properties/status"; the
// first existing member applies. If several Things fit an object, the first one with an existing id member applies.
type Thing struct {
	ID, State []string
	Event     string   // member with the name of an event; it takes precedence over State and is never rewritten
	Open      string   // state that replaces a final state for fault.Effect.Unfinished
	Ends      []string // final states for fault.Effect.OtherEnd
}

// Jobs adds the jobs in a document to x. An unknown state is not final.
func (s *Shape) Jobs(document []byte, x *verdict.Exchange) {
	var v any
	if json.Unmarshal(document, &v) == nil {
		s.Walk(v, x)
	}
}

// Rewritten adds the jobs in the rewritten document to x. If the effect gives an ended job an unknown state, the job is in MaybeFinal.
func (s *Shape) Rewritten(e *fault.Effect, document []byte, x *verdict.Exchange) {
	s.Jobs(s.Rewrite(e, document), x)
	if e.JobStatus == "" || e.Unfinished {
		return
	}
	var truth verdict.Exchange
	s.Jobs(document, &truth)
	for _, job := range truth.Final {
		ShowMaybeFinal(x, job)
	}
}

// Walk adds the jobs in a decoded value to x.
func (s *Shape) Walk(v any, x *verdict.Exchange) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			s.Walk(item, x)
		}
	case map[string]any:
		s.object(v, x)
		for _, member := range v {
			s.Walk(member, x)
		}
	}
}

func (s *Shape) object(v map[string]any, x *verdict.Exchange) {
	thing, id := s.thing(v)
	if thing == nil {
		return
	}
	if state := thing.state(v); state != nil {
		if job, ok := s.Job(id); ok {
			Show(x, job, s.Final(state))
		}
	}
}

// thing returns the kind of an object and its id. The kind is nil if the object is not a Thing.
func (s *Shape) thing(v map[string]any) (*Thing, string) {
	for n := range s.Things {
		if id, ok := first(v, s.Things[n].ID).(string); ok {
			return &s.Things[n], id
		}
	}
	return nil, ""
}

func (t *Thing) state(v map[string]any) any {
	if name := t.event(v); name != nil {
		return name
	}
	return first(v, t.State)
}

// event returns the name of an event, or nil if the object is not an event.
func (t *Thing) event(v map[string]any) any {
	if t.Event == "" {
		return nil
	}
	return v[t.Event]
}

// Show records that the response of an exchange contained a job. final reports whether the job had ended by then.
func Show(x *verdict.Exchange, job string, final bool) {
	list := &x.Shown
	if final {
		list = &x.Final
	}
	switch {
	case slices.Contains(*list, job):
	case len(x.Final)+len(x.Shown) < verdict.MaxShown:
		*list = append(*list, job)
	default:
		x.More = true
	}
}

// ShowMaybeFinal records that an exchange showed a job in an unknown state, but showed its end in another member.
func ShowMaybeFinal(x *verdict.Exchange, job string) {
	if !slices.Contains(x.Final, job) && !slices.Contains(x.MaybeFinal, job) && len(x.MaybeFinal) < verdict.MaxShown {
		x.MaybeFinal = append(x.MaybeFinal, job)
	}
}

func first(object map[string]any, names []string) any {
	for _, name := range names {
		if within, last := owner(object, name); within[last] != nil {
			return within[last]
		}
	}
	return nil
}

// owner returns the object that contains the member at a path, or nil, and the name of the member.
func owner(object map[string]any, path string) (within map[string]any, last string) {
	for {
		name, rest, nested := strings.Cut(path, "/")
		if !nested {
			return object, name
		}
		object, _ = object[name].(map[string]any)
		path = rest
	}
}
