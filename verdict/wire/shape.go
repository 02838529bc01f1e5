package wire

import (
	"encoding/json"
	"slices"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// Shape says how documents of an API show jobs: by objects with an id and a state, at any depth.
type Shape struct {
	Things []Thing
	Final  func(state any) bool                 // reports whether a state is final
	Job    func(id string) (job string, _ bool) // returns the job that an id names, false for no job
}

// Thing is a kind of object with an id and a state. The first member that is there counts; an object is the first thing whose id it has.
type Thing struct{ ID, State []string }

// Jobs notes the jobs that a document shows, with or without a final state. A client that sees an unknown state takes it for one that
// is not final.
func (s *Shape) Jobs(document []byte, x *verdict.Exchange) {
	var v any
	if json.Unmarshal(document, &v) == nil {
		s.Walk(v, x)
	}
}

// Rewritten notes the jobs that a document shows once the effect has rewritten it. Jobs that have ended, and whose state is now an unknown
// one, are told: other members still say so.
func (s *Shape) Rewritten(e *fault.Effect, document []byte, x *verdict.Exchange) {
	s.Jobs(Rewrite(e, document), x)
	if e.JobStatus == "" {
		return
	}
	var truth verdict.Exchange
	s.Jobs(document, &truth)
	for _, job := range truth.Final {
		Tell(x, job)
	}
}

// Walk notes the jobs that a decoded value shows.
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
	for _, thing := range s.Things {
		id, ok := first(v, thing.ID).(string)
		if !ok {
			continue
		}
		if state := first(v, thing.State); state != nil {
			if job, ok := s.Job(id); ok {
				Show(x, job, s.Final(state))
			}
		}
		return
	}
}

// Show notes that an exchange has shown a job.
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

// Tell notes that an exchange has told of a job's end, if it has not shown that by a final state.
func Tell(x *verdict.Exchange, job string) {
	if !slices.Contains(x.Final, job) && !slices.Contains(x.Told, job) && len(x.Told) < verdict.MaxShown {
		x.Told = append(x.Told, job)
	}
}

func first(object map[string]any, names []string) any {
	for _, name := range names {
		if v, ok := object[name]; ok && v != nil {
			return v
		}
	}
	return nil
}
