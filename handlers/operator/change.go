package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// Jobs changes jobs of a client, as its own requests do.
type Jobs interface {
	Submit(ctx context.Context, r job.Request) (job.Receipt, error)
	Cancel(ctx context.Context, client, id job.ID) (job.Change, error)
	Retry(ctx context.Context, client, id job.ID) (job.Change, error)
	RetryAnyway(ctx context.Context, client, id job.ID) (job.Change, error)
	Delete(ctx context.Context, client, id job.ID) error
	Result(ctx context.Context, client, id job.ID) (*job.StoredResult, error)
}

// Webhooks changes webhooks of a client and what is delivered to them.
type Webhooks interface {
	Update(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error)
	Test(ctx context.Context, client, id job.ID) (*job.Delivery, error)
	Redeliver(ctx context.Context, client job.ID, owner job.DeliveryOwner, id job.ID) (*job.Delivery, error)
}

// Clients makes clients and their keys.
type Clients interface {
	CreateClient(ctx context.Context, caller job.Caller) (job.Client, error)
	CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error)
	RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error
}

// decodeBody reads a body of known members; an empty one has none of them.
func (c *call) decodeBody(into any) error {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return nil
	}
	if mime, _, _ := strings.Cut(c.Header.Get("Content-Type"), ";"); strings.TrimSpace(mime) != "application/json" {
		return job.Errorf(job.CodeUnsupportedMediaType, "The body must be application/json.")
	}
	decoder := json.NewDecoder(bytes.NewReader(c.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return job.Errorf(job.CodeMalformed, "The body is not of the expected form: %s.", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return job.Errorf(job.CodeMalformed, "The body has more than one value.")
	}
	return nil
}

type changeView struct {
	JobID     job.ID    `json:"job_id"`
	State     job.State `json:"state"`
	Attempt   int       `json:"attempt"`
	UpdatedAt job.Time  `json:"updated_at"`
	Changed   bool      `json:"changed"` // false: the job was left as it is
}

func changed(status int, c job.Change, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	return asJSON(status, changeView{c.JobID, c.State, c.Attempt, job.Time(c.UpdatedAt), c.Changed})
}

// owned gives the job that the path names, and whose it is.
func (c *call) owned() (client, id job.ID, err error) {
	if id, err = c.pathID(job.CodeJobNotFound, "job"); err != nil {
		return client, id, err
	}
	client, err = c.api.deps.Reader.OwnerOf(c.Context(), id)
	return client, id, err
}

func (a *API) cancelJob(c *call) (answer, error) {
	client, id, err := c.owned()
	if err != nil {
		return answer{}, err
	}
	change, err := a.deps.Jobs.Cancel(c.Context(), client, id)
	return changed(http.StatusOK, change, err)
}

// retryRequest is the body of a retry.
type retryRequest struct {
	Override bool `json:"override"`
}

func (a *API) retryJob(c *call) (answer, error) {
	var r retryRequest
	if err := c.decodeBody(&r); err != nil {
		return answer{}, err
	}
	client, id, err := c.owned()
	if err != nil {
		return answer{}, err
	}
	retry := a.deps.Jobs.Retry
	if r.Override {
		retry = a.deps.Jobs.RetryAnyway
	}
	change, err := retry(c.Context(), client, id)
	return changed(http.StatusAccepted, change, err)
}

// retryDetail is what the audit log keeps of a retry.
func retryDetail(c *call) (json.RawMessage, error) {
	var r retryRequest
	if err := c.decodeBody(&r); err != nil {
		return nil, err
	}
	return json.Marshal(r)
}

func (a *API) deleteJob(c *call) (answer, error) {
	client, id, err := c.owned()
	if err != nil {
		return answer{}, err
	}
	if err := a.deps.Jobs.Delete(c.Context(), client, id); err != nil {
		return answer{}, err
	}
	return answer{status: http.StatusNoContent}, nil
}

// submission is the body of POST /admin/v1/jobs.
type submission struct {
	ClientID *job.ID         `json:"client_id"`
	Job      json.RawMessage `json:"job"`
}

// submitJob submits a job in the name of a client, in the form of the public API.
func (a *API) submitJob(c *call) (answer, error) {
	var s submission
	if err := c.decodeBody(&s); err != nil {
		return answer{}, err
	}
	if s.ClientID == nil || s.Job == nil {
		return answer{}, job.Errorf(job.CodeMalformed, "The body must have client_id, whose job it is to be, and job, the submission.")
	}
	if _, err := a.deps.Reader.Client(c.Context(), *s.ClientID); err != nil {
		return answer{}, err
	}
	request, err := decode.Job(s.Job, c.Header.Get("Idempotency-Key"),
		decode.Limits{MaxPayload: a.cfg.MaxPayload, TestBed: a.cfg.Catalogue.TestBed})
	if err != nil {
		return answer{}, err
	}
	request.ClientID, request.RequestID, request.ReceivedAt = *s.ClientID, c.id, time.Now()
	if request.Language == "" {
		request.Language = job.Languages[0]
	}
	receipt, err := a.deps.Jobs.Submit(c.Context(), request)
	if err != nil {
		return answer{}, within("/job", err)
	}
	c.made = receipt.JobID.String()
	return asJSON(http.StatusAccepted, struct {
		JobID     job.ID    `json:"job_id"`
		State     job.State `json:"state"`
		CreatedAt job.Time  `json:"created_at"`

		Warnings []job.Violation `json:"warnings,omitempty"`
	}{receipt.JobID, receipt.State, job.Time(receipt.CreatedAt), pointInto("/job", request.Warnings)})
}

// within points into the part of a body that was refused.
func within(member string, err error) error {
	var known *job.Error
	if !errors.As(err, &known) || len(known.Violations) == 0 {
		return err
	}
	moved := *known
	moved.Violations = pointInto(member, known.Violations)
	return &moved
}

// pointInto gives violations of a part of a body with pointers into the body.
func pointInto(member string, violations []job.Violation) []job.Violation {
	moved := make([]job.Violation, len(violations))
	for i, v := range violations {
		if v.Parameter == "" {
			v.Pointer = member + v.Pointer
		}
		moved[i] = v
	}
	return moved
}

// getResult answers with the body that a job produced, to be saved. Its type is not told, which clients choose: of this origin
// nothing of theirs is shown as a page or runs as a script.
func (a *API) getResult(c *call) (answer, error) {
	client, id, err := c.owned()
	if err != nil {
		return answer{}, err
	}
	result, err := a.deps.Jobs.Result(c.Context(), client, id)
	if err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusOK, mime: "application/octet-stream", body: result.Body,
		header: http.Header{"Content-Disposition": {`attachment; filename="` + id.String() + `"`}},
	}, nil
}
