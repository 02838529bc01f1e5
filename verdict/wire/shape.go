package wire

import (
	"encoding/json"
	"slices"

	"github.com/forgerun/forgerun/verdict"
)

// Shape says how documents of an API show jobs: by an object with an id and a state, at whatever depth.
type Shape struct {
	ID, State []string                             // names of the members; the first one that is there counts
	Final     func(state any) bool                 // reports whether a state is final
	Job       func(id string) (job string, _ bool) // gives the job that an id names, false for no job
}

// Jobs notes the jobs that a document shows, with or without a final state. A client that sees a state which it does not know takes it
// for one that is not final.
func (s *Shape) Jobs(document []byte, x *verdict.Exchange) {
	var v any
	if json.Unmarshal(document, &v) == nil {
		s.Walk(v, x)
	}
}

// Walk does so for a value that was decoded.
func (s *Shape) Walk(v any, x *verdict.Exchange) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			s.Walk(item, x)
		}
	case map[string]any:
		if id, ok := first(v, s.ID).(string); ok {
			if state := first(v, s.State); state != nil {
				if job, ok := s.Job(id); ok {
					Show(x, job, s.Final(state))
				}
			}
		}
		for _, member := range v {
			s.Walk(member, x)
		}
	}
}

// Show notes that an exchange has shown a job.
func Show(x *verdict.Exchange, job string, final bool) {
	list := &x.Shown
	if final {
		list = &x.Final
	}
	if len(x.Final)+len(x.Shown) < verdict.MaxShown && !slices.Contains(*list, job) {
		*list = append(*list, job)
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
