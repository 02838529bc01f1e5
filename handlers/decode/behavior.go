package decode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/forgerun/forgerun/job"
)

// work reads the params of a CUSTOM job, and notes which params the work kind ignores.
func (r *reader) work(req *job.Request) {
	if req.WorkKind != job.Custom {
		req.Warnings = ignoredParams(req.Params, "")
		return
	}
	req.Warnings = ignoredParams(req.Params, behaviorName)
	var params struct{ Behavior json.RawMessage }
	_ = json.Unmarshal(req.Params, &params) // it is an object
	req.Behavior = &job.Behavior{}
	if len(params.Behavior) == 0 || string(params.Behavior) == "null" {
		return
	}
	in := newReader(r.schemas, params.Behavior, Limits{TestBed: r.limits.TestBed})
	defer in.done()
	in.base, in.guess, in.limit = r.base+"/params/"+behaviorName, r.guess, r.limit
	in.document("Behavior", req.Behavior)
	in.checkResult(in.base+"/result", &req.Behavior.Result)
	r.guess = in.guess
	r.add(&in.findings)
}

const (
	behaviorName = "behavior"
	maxWarnings  = 10 // about members by name
	ignored      = "The work kind ignores this: it is stored and shown with the job, and changes nothing."
)

// ignoredParams returns a warning for each member of params but the used one. The last one counts the others if there are
// many. The pointers begin at the job's request.
func ignoredParams(params []byte, used string) (warnings []job.Violation) {
	more := 0
	for name := range members(params) {
		switch {
		case name == used:
		case len(warnings) < maxWarnings && len(name) <= maxPointerBytes:
			warnings = append(warnings, job.Violation{Pointer: "/params/" + pointerEscapes.Replace(name), Detail: ignored})
		default:
			more++
		}
	}
	if more > 0 {
		warnings = append(warnings, job.Violation{Pointer: "/params", Detail: "And " + job.Grouped(more) + " more members: " + ignored})
	}
	return warnings
}

// members iterates over an object that was checked.
func members(object []byte) func(yield func(name string, value []byte) bool) {
	return func(yield func(name string, value []byte) bool) {
		d := jsontext.NewDecoder(bytes.NewBuffer(object))
		for _, err := d.ReadToken(); err == nil && d.PeekKind() == '"'; {
			var name jsontext.Token
			if name, err = d.ReadToken(); err != nil {
				return
			}
			text := name.String()
			if v, err := d.ReadValue(); err != nil || !yield(text, v) {
				return
			}
		}
	}
}

func (r *reader) checkResult(at string, p *job.PlannedResult) {
	if p.Size != nil && p.Body != nil {
		r.malformedAt(at, "A result has a size or a body, not both.")
	}
}

// extensionName is the name of a member that a problem may have besides its own. fixedMembers belong to the job, or are
// another spelling of a planned one.
var (
	extensionName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{2,63}$`)

	fixedMembers = map[string]string{
		"instance": "", "jobId": "", "jobStatus": "", "submittedAt": "", "completedAt": "", "correlationId": "", "attempt": "",
		"scenario": "", "language": "", "results": "",
		"processingStage": "stage", "retry_after": "retryAfter",
	}
)

// plannedProblem reads a problem that its schema has checked. Its extension members are the client's own.
func (r *reader) plannedProblem(at string, sent []byte) (p job.PlannedProblem) {
	own, _ := get(r.schemas.all["PlannedProblem"], "properties").(map[string]any)
	var known, more []byte
	count := 0
	for name, value := range members(sent) {
		if name == "retryAfter" {
			_ = json.Unmarshal(value, &p.RetryAfter)
			continue
		}
		to := &more
		if own[name] != nil {
			to = &known
		} else if wrong := wrongExtension(name); wrong != "" {
			r.malformedAt(pointer(at, name), wrong)
			continue
		} else {
			count++
		}
		*to, _ = jsontext.AppendQuote(append(*to, ','), name)
		*to = append(append(*to, ':'), value...)
	}
	if len(known) > 0 {
		known[0] = '{'
		_ = json.Unmarshal(append(known, '}'), &p)
	}
	if count > job.MaxExtensions || len(more) > job.MaxExtensionBytes {
		r.invalidAt(at, fmt.Sprintf("A problem may have at most %d extension members, and of at most %d bytes in all.",
			job.MaxExtensions, job.MaxExtensionBytes))
	} else if count > 0 {
		more[0] = '{'
		more = append(more, '}')
		p.Extensions = more
	}
	return p
}

func wrongExtension(name string) string {
	switch other, fixed := fixedMembers[name]; {
	case fixed && other != "":
		return "This member is called " + other + " here."
	case fixed:
		return "This member is the job's own, and cannot be planned."
	case !extensionName.MatchString(name):
		return "The name of an extension member must be a letter and 2 to 63 letters, digits and '_' (RFC 9457, section 3.2)."
	}
	return ""
}
