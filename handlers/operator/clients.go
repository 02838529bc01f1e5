package operator

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"net/http"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
)

// Clients makes clients and their keys.
type Clients interface {
	CreateClient(ctx context.Context, caller job.Caller) (job.Client, error)
	NameClient(ctx context.Context, client job.ID, name string) error
	CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error)
	RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error
}

// Erasures removes clients with all that belongs to them.
type Erasures interface {
	Begin(ctx context.Context, r job.ErasureRequest) (*job.Erasure, error)
	Erasure(ctx context.Context, id job.ID) (*job.Erasure, error)
	Erasures(ctx context.Context, after job.ID, limit int) ([]*job.Erasure, job.ID, error)
}

// caller is the operator, for use cases that decide by who asks.
func (c *call) caller() job.Caller { return job.Caller{Admin: true, Operator: c.operator.Name} }

// clients lists clients with the limits that they have.
func (a *API) clients(ctx context.Context, r admin.Range) (admin.Page[admin.Client], error) {
	page, err := a.deps.Reader.Clients(ctx, r)
	for i := range page.Data {
		a.limit(&page.Data[i])
	}
	return page, err
}

func (a *API) limit(c *admin.Client) {
	c.ActiveJobs.Limit, c.OpenJobs.Limit = view.OrNull(a.cfg.Limits.ClientRunning), view.OrNull(a.cfg.Limits.ClientActive)
	c.Webhooks.Limit = view.OrNull(job.MaxWebhooks)
}

func (a *API) getClient(c *call) (answer, error) {
	client, err := a.deps.Reader.Client(c.Context(), c.subject)
	if err != nil {
		return answer{}, err
	}
	a.limit(&client.Client)
	return ok(client, nil)
}

func (a *API) createClient(c *call) (answer, error) {
	client, err := a.deps.Clients.CreateClient(c.Context(), c.caller())
	if err != nil {
		return answer{}, err
	}
	c.made = client.ID.String()
	return answer{status: http.StatusCreated, value: struct {
		ClientID  job.ID   `json:"client_id"`
		CreatedAt job.Time `json:"created_at"`
	}{client.ID, job.Time(client.CreatedAt)}}, nil
}

// nameClient sets the name that operators see, and answers with the client.
func (a *API) nameClient(c *call, name string) (answer, error) {
	if err := a.deps.Clients.NameClient(c.Context(), c.subject, name); err != nil {
		return answer{}, err
	}
	return a.getClient(c)
}

type keyView struct {
	KeyID     string    `json:"key_id"`
	Scope     job.Scope `json:"scope"`
	APIKey    *string   `json:"api_key"` // null if there was such a key, whose secret is not kept
	ExpiresAt job.Time  `json:"expires_at"`
}

func keyViewOf(k job.IssuedKey) keyView {
	return keyView{k.ID, k.Scope, view.OrNull(k.Secret), job.Time(k.ExpiresAt)}
}

// createKey makes a key beside those that the client has; with rotate it replaces the one that may do all. The secret is in
// this answer only.
func (a *API) createKey(c *call, asked decode.Key) (answer, error) {
	return render(http.StatusCreated, keyViewOf)(a.deps.Clients.CreateKey(c.Context(), c.caller(), c.subject, asked.Rotate, asked.Scope))
}

func (a *API) revokeKey(c *call) (answer, error) {
	return answer{status: http.StatusNoContent}, a.deps.Clients.RevokeKey(c.Context(), c.caller(), c.subject, c.PathValue("key_id"))
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
func erasureDetail(c *call, asked decode.Erasing) any {
	return map[string]any{"confirmed": asked.Confirm.String() == c.PathValue("id"), "reason": asked.Reason}
}

// eraseClient begins the erasure of a client.
func (a *API) eraseClient(c *call, asked decode.Erasing) (answer, error) {
	if asked.Confirm != c.subject {
		return answer{}, job.Invalid(job.Violation{Pointer: "/confirm",
			Detail: "This must be the id of the client, as in the path: all that belongs to it is removed for good."})
	}
	e, err := a.deps.Erasures.Begin(c.Context(), job.ErasureRequest{
		ClientID: c.subject, Operator: c.operator.Name, Reason: asked.Reason, RequestID: c.requestID,
	})
	if err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusAccepted, header: http.Header{"Location": {prefix + "erasures/" + e.ID.String()}}, value: struct {
		ErasureID job.ID           `json:"erasure_id"`
		ClientID  job.ID           `json:"client_id"`
		State     job.ErasureState `json:"state"`
	}{e.ID, e.ClientID, e.State()}}, nil
}

// verbatim has the text of records be what has the hash.
func verbatim(a answer, err error) (answer, error) {
	a.verbatim = true
	return a, err
}

func (a *API) getErasure(c *call) (answer, error) {
	return verbatim(render(http.StatusOK, erasureViewOf)(a.deps.Erasures.Erasure(c.Context(), c.subject)))
}

func (a *API) listErasures(c *call) (answer, error) {
	return verbatim(paged(c, erasureViewOf, func(after job.ID, limit int) ([]*job.Erasure, job.ID, error) {
		return a.deps.Erasures.Erasures(c.Context(), after, limit)
	}))
}
