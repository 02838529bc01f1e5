package operator

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
)

// Erasures removes clients with all that belongs to them.
type Erasures interface {
	Begin(ctx context.Context, r job.ErasureRequest) (*job.Erasure, error)
	Erasure(ctx context.Context, id job.ID) (*job.Erasure, error)
	Erasures(ctx context.Context, after job.ID, limit int) ([]*job.Erasure, job.ID, error)
}

type erasureView struct {
	ErasureID  job.ID           `json:"erasure_id"`
	ClientID   job.ID           `json:"client_id"`
	State      job.ErasureState `json:"state"`
	Step       string           `json:"step"`
	Operator   string           `json:"operator"`
	Reason     string           `json:"reason"`
	RequestID  string           `json:"request_id"`
	CreatedAt  job.Time         `json:"created_at"`
	StartedAt  *job.Time        `json:"started_at"`
	FinishedAt *job.Time        `json:"finished_at"`
	Removed    map[string]int   `json:"removed"`
	Proof      *proofView       `json:"proof"` // null until it is done
}

type proofView struct {
	CountedAt job.Time        `json:"counted_at"`
	Remaining map[string]int  `json:"remaining"`
	Record    json.RawMessage `json:"record"`
	SHA256    string          `json:"sha256"`
}

func erasureViewOf(e *job.Erasure) erasureView {
	v := erasureView{
		ErasureID: e.ID, ClientID: e.ClientID, State: e.State(), Step: e.Step, Operator: e.Operator, Reason: e.Reason, RequestID: e.RequestID,
		CreatedAt: job.Time(e.CreatedAt), StartedAt: job.TimeOf(e.StartedAt), FinishedAt: job.TimeOf(e.FinishedAt), Removed: e.Removed,
	}
	if e.FinishedAt != nil {
		v.Proof = &proofView{job.Time(*e.FinishedAt), e.Remaining, json.RawMessage(e.Record), hex.EncodeToString(e.SHA256)}
	}
	return v
}

// erasureDetail is what the audit log keeps of the request.
func erasureDetail(c *call) (json.RawMessage, error) {
	confirm, reason, err := decode.Erasure(c.body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{"confirmed": confirm.String() == c.PathValue("id"), "reason": reason})
}

// eraseClient begins the erasure of a client.
func (a *API) eraseClient(c *call) (answer, error) {
	id, err := c.pathID(job.CodeClientNotFound, "client")
	if err != nil {
		return answer{}, err
	}
	confirm, reason, err := decode.Erasure(c.body)
	if err != nil {
		return answer{}, err
	}
	if confirm != id {
		return answer{}, job.Invalid(job.Violation{Pointer: "/confirm",
			Detail: "This must be the id of the client, as in the path: all that belongs to it is removed for good."})
	}
	e, err := a.deps.Erasures.Begin(c.Context(), job.ErasureRequest{
		ClientID: id, Operator: c.operator.Name, Reason: reason, RequestID: c.id,
	})
	if err != nil {
		return answer{}, err
	}
	made, err := asJSON(http.StatusAccepted, struct {
		ErasureID job.ID           `json:"erasure_id"`
		ClientID  job.ID           `json:"client_id"`
		State     job.ErasureState `json:"state"`
	}{e.ID, e.ClientID, e.State()})
	made.header = http.Header{"Location": {"/admin/v1/erasures/" + e.ID.String()}}
	return made, err
}

func (a *API) getErasure(c *call) (answer, error) {
	id, err := c.pathID(job.CodeRequestNotFound, "erasure")
	if err != nil {
		return answer{}, err
	}
	e, err := a.deps.Erasures.Erasure(c.Context(), id)
	if err != nil {
		return answer{}, err
	}
	return verbatim(erasureViewOf(e))
}

// verbatim answers with JSON in which the text of records is what has the hash: nothing in it is escaped for HTML.
func verbatim(v any) (answer, error) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return answer{status: http.StatusOK, mime: "application/json", body: body.Bytes()}, err
}

func (a *API) listErasures(c *call) (answer, error) {
	limit := query.Limit(c.param("limit"), query.DefaultLimit)
	position, err := c.openCursor(len(job.ID{}))
	if err != nil {
		return answer{}, err
	}
	var after job.ID
	copy(after[:], position)
	all, next, err := a.deps.Erasures.Erasures(c.Context(), after, limit)
	if err != nil {
		return answer{}, err
	}
	views := make([]erasureView, len(all))
	for i, e := range all {
		views[i] = erasureViewOf(e)
	}
	page, err := c.pageView(views, limit, next.IsZero(), next[:])
	if err != nil {
		return answer{}, err
	}
	return verbatim(page)
}
