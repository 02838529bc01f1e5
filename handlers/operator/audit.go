package operator

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

// Auditor keeps what operators did. An action whose beginning cannot be stored is not done.
type Auditor interface {
	Begin(ctx context.Context, e admin.AuditEntry) error
	End(ctx context.Context, id job.ID, status int, target string) error
	Audit(ctx context.Context, q admin.AuditQuery) (admin.Page[admin.AuditEntry], error)
}

// endTimeout bounds the completion of an entry, which outlives the request.
const endTimeout = 5 * time.Second

// audited does the action of a route between the two halves of its entry.
func (c *call) audited() (a answer, err error) {
	rt := c.route
	entry := admin.AuditEntry{
		AuditID: job.ID(uuid.Must(uuid.NewV7())), Operator: c.operator.Name, Action: rt.action, TargetType: rt.target, RequestID: c.requestID,
		Detail: json.RawMessage("{}"),
	}
	if id := c.PathValue("id"); isText(id) {
		entry.TargetID = &id
	}
	if c.body, err = c.readBody(); err != nil {
		return answer{}, err
	}
	if rt.detail != nil {
		detail, err := rt.detail(c)
		if err != nil {
			return answer{}, err
		}
		if entry.Detail, err = json.Marshal(detail); err != nil {
			return answer{}, err
		}
	}
	if err := c.api.deps.Audit.Begin(c.Context(), entry); err != nil {
		return answer{}, err
	}
	a, err = c.do(rt)
	status := a.status
	if err != nil {
		status = c.problemOf(err).Status
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), endTimeout)
	defer cancel()
	if failed := c.api.deps.Audit.End(ctx, entry.AuditID, status, c.made); failed != nil {
		c.api.logFailure(c, failed) // the entry stays without a status: it was perhaps done
	}
	return a, err
}

// listAudit answers with what operators did.
func (a *API) listAudit(c *call) (answer, error) {
	return paged(c, asIs, func(after job.ID, limit int) ([]admin.AuditEntry, job.ID, error) {
		page, err := a.deps.Audit.Audit(c.Context(), admin.AuditQuery{
			Operator: c.param("operator"), Action: c.param("action"), TargetID: c.param("target_id"),
			From: query.TimeOf(c.param("from")), To: query.TimeOf(c.param("to")), After: after, Limit: limit,
		})
		return page.Data, page.Next, err
	})
}

// maxBodyBytes bounds the bodies of changes: a submission may have as much as in the public API.
const maxBodyBytes = 1 << 20

// readBody gives the body of a change, which says nothing where none is documented.
func (c *call) readBody() ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, c.Body, maxBodyBytes))
	media, _, _ := strings.Cut(c.Header.Get("Content-Type"), ";")
	switch {
	case err != nil:
		return nil, job.Errorf(job.CodePayloadTooLarge, "The body is too large, or it did not arrive: at most %d bytes are read.", maxBodyBytes)
	case !c.route.body:
		return nil, decode.Empty(body)
	case len(body) > 0 && !strings.EqualFold(strings.TrimSpace(media), "application/json"):
		return nil, job.Errorf(job.CodeUnsupportedMediaType, "Send the body as application/json.")
	}
	return body, nil
}
