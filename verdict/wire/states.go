package wire

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/forgerun/forgerun/verdict/fault"
)

// restate changes the states of the objects in a value, at any depth. `document` is true for the outermost value, which may lack an id.
func (s *Shape) restate(e *fault.Effect, v any, document bool) {
	if e.JobStatus == "" && !e.Unfinished && !e.OtherEnd {
		return
	}
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			s.restate(e, item, false)
		}
	case map[string]any:
		if document {
			s.root(e, v)
		} else if thing, id := s.thing(v); thing != nil {
			if _, ok := s.Job(id); ok {
				s.setState(e, thing, v)
			}
		}
		for name, member := range v {
			if name != "failure" {
				s.restate(e, member, false)
			}
		}
	}
}

// root changes the state of a document that is one object. The object needs no id.
func (s *Shape) root(e *fault.Effect, d map[string]any) {
	if thing, _ := s.thing(d); thing != nil {
		s.setState(e, thing, d)
		return
	}
	for n := range s.Things {
		if first(d, s.Things[n].State) != nil {
			s.setState(e, &s.Things[n], d)
			return
		}
	}
}

// setState changes the state of one object. If several paths of t.State contain the state, setState changes all of them. An event that
// announces a final state is not changed.
func (s *Shape) setState(e *fault.Effect, t *Thing, d map[string]any) {
	if event := t.event(d); event != nil && s.Final(event) {
		return
	}
	state := first(d, t.State)
	final := s.Final(state)
	for _, name := range t.State {
		within, last := owner(d, name)
		nested, isObject := within[last].(map[string]any)
		switch {
		case within[last] == nil || !isObject && within[last] != state:
			continue
		case final && e.Unfinished:
			clearEnd(t, d)
			clearEnd(t, within)
			clearEnd(t, nested)
		}
		within[last] = s.newState(e, t, within[last], final)
	}
}

// newState returns the new state. The new state has the type of `state`: string, Boolean ("done") or Kubernetes status object.
func (s *Shape) newState(e *fault.Effect, t *Thing, state any, final bool) any {
	switch v := state.(type) {
	case string:
		return word(e, t, v, final)
	case bool:
		return v && !e.Unfinished
	case map[string]any:
		conditions, _ := v["conditions"].([]any)
		for _, item := range conditions {
			c, _ := item.(map[string]any)
			name, _ := c["type"].(string)
			switch {
			case c["status"] != "True" || !s.Final(name):
			case e.Unfinished && e.JobStatus == "":
				c["status"] = "False"
			default:
				c["type"] = word(e, t, name, true)
			}
		}
	}
	return state
}

func word(e *fault.Effect, t *Thing, state string, final bool) string {
	switch {
	case e.JobStatus != "":
		return e.JobStatus
	case final && e.Unfinished:
		return t.Open
	case final && e.OtherEnd:
		for _, end := range t.Ends {
			if !strings.EqualFold(end, state) {
				return end
			}
		}
	}
	return state
}

// endMembers are names of members that show the end of a job. They are in lower case, without _ and -.
var endMembers = []string{
	"finishedat", "completedat", "endedat", "failedat", "canceledat", "cancelledat", "succeededat", "expiredat", "expiresat", "endat",
	"finishtime", "finishedtime", "completiontime", "completedtime", "endtime", "enddate", "enddatetime", "completeddatetime",
	"finisheddatetime", "error", "errors", "errormessage", "errorcode", "failure", "failurereason", "result", "results", "resulturl",
	"resulturi", "resultlink", "resultlocation", "resourcelocation", "output", "outputs", "outputurl", "outputfileid", "errorfileid",
	"response", "outcome", "download", "downloadurl", "downloadlink", "report", "reporturl", "canretry", "exitcode",
	"succeeded", "failed",
}

func clearEnd(t *Thing, d map[string]any) {
	for name, value := range d {
		plain := strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
		switch nested, isObject := value.(map[string]any); {
		case isObject && plain == "links":
			delete(nested, "retry")
			clearEnd(t, nested)
		case isObject && plain == "counts":
			reopen(nested)
		}
		if !slices.Contains(endMembers, plain) || slices.ContainsFunc(t.State, func(path string) bool {
			return path == name || strings.HasPrefix(path, name+"/")
		}) {
			continue
		}
		_, said := value.(bool)
		_, counted := value.(json.Number)
		switch {
		case said:
			d[name] = false
		case counted && (plain == "succeeded" || plain == "failed"):
			d[name] = json.Number("0")
		case plain == "outcome" || strings.HasSuffix(plain, "at") || strings.HasSuffix(plain, "time") || strings.HasSuffix(plain, "date"):
			d[name] = nil
		default:
			delete(d, name)
		}
	}
}

// reopen moves the counts of ended jobs to counts["running"].
func reopen(counts map[string]any) {
	running, ok := counts["running"].(json.Number)
	sum, _ := running.Int64()
	if !ok {
		return
	}
	for _, name := range []string{"succeeded", "failed", "canceled"} {
		if count, ok := counts[name].(json.Number); ok {
			n, _ := count.Int64()
			sum += n
			counts[name] = json.Number("0")
		}
	}
	counts["running"] = json.Number(strconv.FormatInt(sum, 10))
}
