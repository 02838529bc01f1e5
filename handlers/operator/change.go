package operator

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
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

func (a *API) retryJob(c *call) (answer, error) {
	override, err := decode.Override(c.body)
	if err != nil {
		return answer{}, err
	}
	client, id, err := c.owned()
	if err != nil {
		return answer{}, err
	}
	retry := a.deps.Jobs.Retry
	if override {
		retry = a.deps.Jobs.RetryAnyway
	}
	change, err := retry(c.Context(), client, id)
	return changed(http.StatusAccepted, change, err)
}

// retryDetail is what the audit log keeps of a retry.
func retryDetail(c *call) (json.RawMessage, error) {
	override, err := decode.Override(c.body)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]bool{"override": override})
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

// submitJob submits a job in the name of a client, in the form of the public API.
func (a *API) submitJob(c *call) (answer, error) {
	client, body, err := decode.ClientJob(c.body)
	if err != nil {
		return answer{}, err
	}
	key, err := header.Key(c.Header["Idempotency-Key"]...)
	if err != nil {
		return answer{}, err
	}
	if _, err := a.deps.Reader.Client(c.Context(), client); err != nil {
		return answer{}, err
	}
	request, err := decode.Job(body, key, decode.Limits{MaxPayload: a.cfg.MaxPayload, TestBed: a.cfg.Catalogue.TestBed})
	if err != nil {
		return answer{}, within("/job", err)
	}
	request.ClientID, request.RequestID, request.ReceivedAt = client, c.id, time.Now()
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
