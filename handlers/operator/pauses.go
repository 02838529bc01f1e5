package operator

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/forgerun/forgerun/handlers/decode"
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

// pauseDetail is what the audit log keeps of the request.
func pauseDetail(c *call) (json.RawMessage, error) {
	p, err := decode.Pause(c.body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"scope": p.Scope, "target": p.Target, "mode": p.Mode, "reason": p.Reason})
}

// pause stops something.
func (a *API) pause(c *call) (answer, error) {
	asked, err := decode.Pause(c.body)
	if err != nil {
		return answer{}, err
	}
	if asked.Scope == job.PauseClient {
		id, _ := job.ParseID(asked.Target) // checked
		if _, err := a.deps.Reader.Client(c.Context(), id); err != nil {
			return answer{}, err
		}
	}
	asked.Operator = c.operator.Name
	p, added, err := a.deps.Pauses.Pause(c.Context(), asked)
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
