package operator

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/forgerun/forgerun/job"
)

// Pauses stops and resumes jobs.
type Pauses interface {
	Pause(ctx context.Context, p job.Pause) (stored job.Pause, added bool, err error)
	Resume(ctx context.Context, id job.ID) error
	Pauses(ctx context.Context) (job.Pauses, error)
}

type pauseView struct {
	PauseID   job.ID         `json:"pause_id"`
	Scope     job.PauseScope `json:"scope"`
	Target    *string        `json:"target"` // null of all
	Mode      job.PauseMode  `json:"mode"`
	Operator  string         `json:"operator"`
	Reason    string         `json:"reason"`
	CreatedAt job.Time       `json:"created_at"`
}

func pauseViewOf(p job.Pause) pauseView {
	v := pauseView{PauseID: p.ID, Scope: p.Scope, Mode: p.Mode, Operator: p.Operator, Reason: p.Reason, CreatedAt: job.Time(p.CreatedAt)}
	if p.Target != "" {
		v.Target = &p.Target
	}
	return v
}

// pauseRequest is the body of the request to stop something.
type pauseRequest struct {
	Scope  job.PauseScope `json:"scope"`
	Target string         `json:"target"`
	Mode   job.PauseMode  `json:"mode"`
	Reason string         `json:"reason"`
}

func (c *call) pauseRequest() (r pauseRequest, err error) {
	if err := c.decodeBody(&r); err != nil {
		return r, err
	}
	if r.Mode == "" {
		r.Mode = job.ModePause
		if r.Scope == job.PauseWorker {
			r.Mode = job.ModeDrain
		}
	}
	if wrong := r.check(); len(wrong) > 0 {
		return r, job.Invalid(wrong...)
	}
	return r, nil
}

// check gives all that is wrong with the request, and brings the target into its usual spelling.
func (r *pauseRequest) check() (wrong []job.Violation) {
	add := func(pointer, detail string) { wrong = append(wrong, job.Violation{Pointer: pointer, Detail: detail}) }
	if !slices.Contains(job.PauseScopes, r.Scope) {
		add("/scope", "It must be ALL, KIND, CLIENT or WORKER.")
	}
	if !slices.Contains(job.PauseModes, r.Mode) {
		add("/mode", "It must be PAUSE or DRAIN.")
	} else if r.Scope == job.PauseWorker && r.Mode != job.ModeDrain {
		add("/mode", "A worker can only be drained: it takes no more jobs and ends those that it has.")
	}
	switch r.Scope {
	case job.PauseAll:
		if r.Target != "" {
			add("/target", "It must be left out where the scope is ALL.")
		}
	case job.PauseKind:
		if !slices.Contains(job.AllKinds(), job.Kind(r.Target)) {
			add("/target", "It must be a work kind of the catalogue.")
		}
	case job.PauseClient, job.PauseWorker:
		id, err := job.ParseID(r.Target)
		if err != nil || id.IsZero() {
			add("/target", "It must be the id of the "+strings.ToLower(string(r.Scope))+".")
		}
		r.Target = id.String()
	}
	if detail := reasonFault(r.Reason); detail != "" {
		add("/reason", detail)
	}
	return wrong
}

// reasonFault says what is wrong with a reason that must be given.
func reasonFault(reason string) string {
	switch {
	case strings.TrimSpace(reason) == "":
		return "It must say why: others read it in the audit log."
	case len(reason) > maxReasonBytes:
		return "It may have 1000 bytes at most."
	case strings.ContainsFunc(reason, func(c rune) bool { return !unicode.IsPrint(c) }):
		return "It may have printable characters only, in one line."
	}
	return ""
}

// pauseDetail is what the audit log keeps of the request.
func pauseDetail(c *call) (json.RawMessage, error) {
	r, err := c.pauseRequest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

// pause stops something.
func (a *API) pause(c *call) (answer, error) {
	r, err := c.pauseRequest()
	if err != nil {
		return answer{}, err
	}
	if r.Scope == job.PauseClient {
		id, _ := job.ParseID(r.Target) // checked
		if _, err := a.deps.Reader.Client(c.Context(), id); err != nil {
			return answer{}, err
		}
	}
	p, added, err := a.deps.Pauses.Pause(c.Context(), job.Pause{
		Scope: r.Scope, Target: r.Target, Mode: r.Mode, Operator: c.operator.Name, Reason: r.Reason,
	})
	if err != nil {
		return answer{}, err
	}
	c.made = p.ID.String()
	status := http.StatusOK
	if added {
		status = http.StatusCreated
	}
	return asJSON(status, pauseViewOf(p))
}

// resume ends a pause.
func (a *API) resume(c *call) (answer, error) {
	id, err := c.pathID(job.CodeRequestNotFound, "pause")
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, a.deps.Pauses.Resume(c.Context(), id)
}

func (a *API) listPauses(c *call) (answer, error) {
	all, err := a.deps.Pauses.Pauses(c.Context())
	if err != nil {
		return answer{}, err
	}
	views := make([]pauseView, len(all))
	for i, p := range all {
		views[i] = pauseViewOf(p)
	}
	return asJSON(http.StatusOK, struct {
		Data []pauseView `json:"data"`
	}{views})
}
