// Package wire applies faults to documents and event streams. It also records the jobs in the documents and events.
package wire

import (
	"bytes"
	"encoding/json"

	"github.com/forgerun/forgerun/verdict/fault"
)

// optional lists the members that documents of jobs and problems may omit (async problem details draft, appendix F.1).
var optional = []string{"correlationId", "scenario", "language", "retryAfter", "expiresAt", "links", "correlation_id", "progress",
	"estimate", "labels", "instance"}

// texts are translations of the title and the detail of problems.
var texts = map[string]map[string]string{
	"de": {"title": "Der Auftrag ist nicht gelungen", "detail": "Was geschehen ist, sagt der Typ des Problems."},
	"fr": {"title": "Le travail n'a pas abouti", "detail": "Le type du problème dit ce qui s'est passé."},
}

// Rewrite applies the effect to a JSON object or list. Other documents do not change. Numbers keep their digits.
func (s *Shape) Rewrite(e *fault.Effect, document []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var v any
	if decoder.Decode(&v) != nil {
		return document
	}
	d, object := v.(map[string]any)
	if _, list := v.([]any); !object && !list {
		return document
	}
	s.restate(e, v, true)
	if object {
		rewrite(e, d)
		if failure, ok := d["failure"].(map[string]any); ok { // problem document of a failed job
			if e.JobStatus != "" {
				s.root(e, failure)
			}
			rewrite(e, failure)
		}
		addMembers(e, d)
	}
	out, err := encoded(v, document)
	if err != nil {
		return document
	}
	return out
}

func addMembers(e *fault.Effect, d map[string]any) {
	for _, name := range optional {
		if _, there := d[name]; there && e.NullOptional {
			d[name] = nil
		}
		if e.OmitOptional {
			delete(d, name)
		}
	}
	if e.Extensions {
		d["x_extension"] = map[string]any{"list": []any{1, "two", nil}, "nested": map[string]any{"deep": true}}
		d["xNumber"] = json.Number("12345678901234567890123")
	}
}

func rewrite(e *fault.Effect, d map[string]any) {
	if _, problem := d["status"].(json.Number); problem && e.ProblemType != "" {
		replace(d, "type", e.ProblemType)
	}
	if text := texts[e.Language]; text != nil {
		d["language"] = e.Language
		for name, words := range text {
			replace(d, name, words)
		}
	}
}

func replace(d map[string]any, name, value string) {
	if _, ok := d[name].(string); ok {
		d[name] = value
	}
}
