package operator

import (
	"context"
	"encoding/binary"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
	"github.com/forgerun/forgerun/job/view"
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

func (c *call) jobQuery() admin.JobQuery {
	return admin.JobQuery{
		ClientID: query.IDOf(c.param("client_id")), BatchID: query.IDOf(c.param("batch_id")),
		ScheduleID: query.IDOf(c.param("schedule_id")), State: job.State(c.param("state")),
		Type: job.Type(c.param("type")), WorkKind: job.Kind(c.param("kind")), CorrelationID: c.param("correlation_id"),
		FailureCode: job.Code(c.param("failure_code")), From: query.TimeOf(c.param("from")), To: query.TimeOf(c.param("to")), Limit: c.limit(),
	}
}

// placeBytes is the length of a place in a list of jobs: its moment in microseconds since 1970, and the id.
const placeBytes = 8 + len(job.ID{})

func bytesOf(p admin.Place) []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(p.At.UnixMicro())), p.ID[:]...)
}

func placeOf(position []byte) admin.Place {
	return admin.Place{At: time.UnixMicro(int64(binary.BigEndian.Uint64(position))).UTC(), ID: job.ID(position[8:])}
}

// listJobs answers with jobs of all clients.
func (a *API) listJobs(c *call) (answer, error) {
	q := c.jobQuery()
	if cursor := c.param("cursor"); cursor != "" {
		position, err := a.deps.CursorKey.Open(c.Context(), job.ID{}, c.scope(), cursor, placeBytes)
		if err != nil {
			return answer{}, err
		}
		q.After = placeOf(position)
	}
	page, err := a.deps.Reader.Jobs(c.Context(), q)
	if err != nil {
		return answer{}, err
	}
	for i := range page.Jobs {
		a.addProgress(c.Context(), &page.Jobs[i])
	}
	return goOn(c, query.ListOf(page.Jobs, q.Limit, asIs), page.Next.IsZero(), bytesOf(page.Next))
}

func (a *API) countJobs(c *call) (answer, error) {
	return ok(a.deps.Reader.Count(c.Context(), c.jobQuery()))
}

// getJob answers with a job and its story.
func (a *API) getJob(c *call) (answer, error) {
	j, err := a.deps.Reader.Job(c.Context(), c.subject)
	if err != nil {
		return answer{}, err
	}
	a.addProgress(c.Context(), &j.JobSummary)
	if w := j.Waiting; w != nil && a.deps.Stopped != nil {
		w.Reason = a.deps.Stopped().Reason(w.Reason, j.WorkKind, j.ClientID)
		w.Detail = w.Reason.Text()
	}
	if j.TraceID != nil && a.cfg.TraceURL != "" {
		j.TraceURL = new(strings.ReplaceAll(a.cfg.TraceURL, TraceIDMark, *j.TraceID))
	}
	return ok(j, nil)
}

// addProgress says how far a running job has come, if that is known.
func (a *API) addProgress(ctx context.Context, j *admin.JobSummary) {
	if j.State == job.Running {
		j.Progress = view.ProgressOf(a.deps.Progress.Progress(ctx, j.JobID, j.Attempt))
	}
}

// owned does something to the job that the path names, on behalf of the client whose it is.
func owned[T any](c *call, do func(ctx context.Context, client, id job.ID) (T, error)) (v T, err error) {
	client, err := c.api.deps.Reader.OwnerOf(c.Context(), c.subject)
	if err != nil {
		return v, err
	}
	return do(c.Context(), client, c.subject)
}

func (a *API) cancelJob(c *call) (answer, error) {
	return render(http.StatusOK, view.RetriedOf)(owned(c, a.deps.Jobs.Cancel))
}

func (a *API) retryJob(c *call, override bool) (answer, error) {
	retry := a.deps.Jobs.Retry
	if override {
		retry = a.deps.Jobs.RetryAnyway
	}
	return render(http.StatusAccepted, view.RetriedOf)(owned(c, retry))
}

// retryDetail is what the audit log keeps of a retry.
func retryDetail(_ *call, override bool) any { return map[string]bool{"override": override} }

func (a *API) deleteJob(c *call) (answer, error) {
	_, err := owned(c, func(ctx context.Context, client, id job.ID) (none struct{}, err error) {
		return none, a.deps.Jobs.Delete(ctx, client, id)
	})
	return answer{status: http.StatusNoContent}, err
}

func (a *API) decodeLimits() decode.Limits {
	return decode.Limits{MaxPayload: a.cfg.MaxPayload, TestBed: a.cfg.Catalogue.TestBed}
}

// submitJob submits a job in the name of a client, in the form of the public API.
func (a *API) submitJob(c *call, asked decode.ForClient) (answer, error) {
	key, err := header.Key(c.Header["Idempotency-Key"]...)
	if err != nil {
		return answer{}, err
	}
	if _, err := a.deps.Reader.Client(c.Context(), asked.ClientID); err != nil {
		return answer{}, err
	}
	request, err := decode.Job(asked.Request, key, a.decodeLimits())
	if err != nil {
		return answer{}, within("/job", err)
	}
	request.ClientID, request.RequestID, request.ReceivedAt = asked.ClientID, c.requestID, time.Now()
	if request.Language == "" {
		request.Language = job.Languages[0]
	}
	receipt, err := a.deps.Jobs.Submit(c.Context(), request)
	if err != nil {
		return answer{}, within("/job", err)
	}
	c.made = receipt.JobID.String()
	return answer{status: http.StatusAccepted, value: view.Receipt{
		JobID: receipt.JobID, State: receipt.State, CreatedAt: job.Time(receipt.CreatedAt), Warnings: pointInto("/job", request.Warnings),
	}}, nil
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

// getResult answers with the body that a job produced, to be saved. Its type, which clients choose, is not sent: of this origin
// nothing of theirs is shown as a page or runs as a script.
func (a *API) getResult(c *call) (answer, error) {
	result, err := owned(c, a.deps.Jobs.Result)
	if err != nil {
		return answer{}, err
	}
	return answer{
		status: http.StatusOK, mime: "application/octet-stream", body: result.Body,
		header: http.Header{"Content-Disposition": {`attachment; filename="` + c.subject.String() + `"`}},
	}, nil
}
