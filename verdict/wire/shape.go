package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Shape describes how jobs look in the JSON documents of an API. Each job is an object with an id and a state.
type Shape struct {
	Things []Thing                              // kinds of objects; the first one that fits an object is used
	Final  func(state any) bool                 // reports whether a state is final
	Job    func(id string) (job string, _ bool) // returns the id of the job in its recorded form; false if `id` is not the id of a job
}

// Thing is a kind of object with an id and a state. ID and State list paths such as "properties/status". The first path that exists is
// used.
type Thing struct {
	ID, State []string
	Event     string   // member that contains an event's name; read instead of State, and never rewritten
	Open      string   // replaces a final state if the effect's Unfinished is true
	Ends      []string // final states; an effect with OtherEnd replaces a final state by a different one of these
}

// Jobs adds the jobs in a document to x. Jobs with an unknown state are added as unfinished.
func (s *Shape) Jobs(document []byte, x *verdict.Exchange) {
	var v any
	if json.Unmarshal(document, &v) == nil {
		s.Walk(v, x)
	}
}

// Rewritten adds the jobs in the rewritten document to x. If the effect sets a state without Unfinished, other members may still show
// the end. In this case, Rewritten also adds some jobs to x.MaybeFinal: those that the original document shows as ended.
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

// thing returns the Thing that fits the object, and the object's id. It returns nil if no Thing fits.
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

// Show adds a job to x.Final if the job has ended, and otherwise to x.Shown. The two lists together have at most verdict.MaxShown jobs.
// For further jobs, Show only sets x.More.
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

// ShowMaybeFinal adds a job to x.MaybeFinal, unless x.Final contains it.
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

// owner returns the object that contains the member at `path`, or nil. It also returns the last name of the path.
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
