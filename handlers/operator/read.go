package operator

import (
	"context"
	"encoding/binary"
	"net/http"
	"strings"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/query"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/admin"
)

func (c *call) jobQuery() admin.JobQuery {
	return admin.JobQuery{
		ClientID: c.idParam("client_id"), BatchID: c.idParam("batch_id"), State: job.State(c.param("state")), Type: job.Type(c.param("type")),
		WorkKind: job.Kind(c.param("kind")), CorrelationID: c.param("correlation_id"), FailureCode: job.Code(c.param("failure_code")),
		From: c.timeParam("from"), To: c.timeParam("to"), Limit: query.Limit(c.param("limit"), query.DefaultLimit),
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
	position, err := c.openCursor(placeBytes)
	if err != nil {
		return answer{}, err
	}
	if position != nil {
		q.After = placeOf(position)
	}
	page, err := a.deps.Reader.Jobs(c.Context(), q)
	if err != nil {
		return answer{}, err
	}
	return c.page(page.Jobs, q.Limit, page.Next.IsZero(), bytesOf(page.Next))
}

func (a *API) countJobs(c *call) (answer, error) {
	count, err := a.deps.Reader.Count(c.Context(), c.jobQuery())
	if err != nil {
		return answer{}, err
	}
	return asJSON(http.StatusOK, count)
}

// getJob answers with a job and its story.
func (a *API) getJob(c *call) (answer, error) {
	id, err := c.pathID(job.CodeJobNotFound, "job")
	if err != nil {
		return answer{}, err
	}
	j, err := a.deps.Reader.Job(c.Context(), id)
	if err != nil {
		return answer{}, err
	}
	if j.State == job.Running {
		j.Progress = progressOf(a.deps.Progress.Progress(c.Context(), j.JobID, j.Attempt))
	}
	if j.TraceID != nil && a.cfg.TraceURL != "" {
		j.TraceURL = new(strings.ReplaceAll(a.cfg.TraceURL, TraceIDMark, *j.TraceID))
	}
	return asJSON(http.StatusOK, j)
}

func progressOf(p *job.Progress) *admin.Progress {
	if p == nil {
		return nil
	}
	return &admin.Progress{
		Percentage: p.Percentage, Phase: p.Phase, StepsCompleted: p.StepsCompleted, StepsTotal: p.StepsTotal,
		ItemsProcessed: p.ItemsProcessed, ItemsTotal: p.ItemsTotal, UpdatedAt: job.Time(p.UpdatedAt),
	}
}

// clients lists clients with the limits that they have.
func (a *API) clients(ctx context.Context, r admin.Range) (admin.Page[admin.Client], error) {
	page, err := a.deps.Reader.Clients(ctx, r)
	for i := range page.Data {
		a.limit(&page.Data[i])
	}
	return page, err
}

func (a *API) limit(c *admin.Client) {
	webhooks := job.MaxWebhooks
	c.ActiveJobs.Limit, c.OpenJobs.Limit, c.Webhooks.Limit = orNone(a.cfg.Limits.ClientRunning), orNone(a.cfg.Limits.ClientActive), &webhooks
}

// orNone makes the zero that means no limit null.
func orNone(limit int) *int {
	if limit == 0 {
		return nil
	}
	return &limit
}

func (a *API) getClient(c *call) (answer, error) {
	id, err := c.pathID(job.CodeClientNotFound, "client")
	if err != nil {
		return answer{}, err
	}
	client, err := a.deps.Reader.Client(c.Context(), id)
	if err != nil {
		return answer{}, err
	}
	a.limit(&client.Client)
	return asJSON(http.StatusOK, client)
}

func (a *API) getSystem(c *call) (answer, error) {
	system, err := a.deps.Reader.System(c.Context())
	if err != nil {
		return answer{}, err
	}
	system.Version, system.DispatchWindow.Limit = a.cfg.Version, orNone(a.cfg.Limits.Window)
	return asJSON(http.StatusOK, system)
}

type catalogueView struct {
	Types []job.Type `json:"types"`
	Kinds []kindView `json:"kinds"`
}

type kindView struct {
	WorkKind        job.Kind `json:"work_kind"`
	Description     string   `json:"description"`
	ShouldFail      bool     `json:"should_fail"`
	DurationMS      int64    `json:"duration_ms"`
	ExpectedOutcome string   `json:"expected_outcome"`
}

// kindDescriptions says what each kind does, as the API's document has it.
var kindDescriptions = sync.OnceValue(func() map[job.Kind]string {
	var d struct {
		Components struct {
			Schemas struct {
				WorkKind struct {
					Descriptions map[job.Kind]string `yaml:"x-enumDescriptions"`
				} `yaml:"WorkKind"`
			}
		}
	}
	if err := yaml.Unmarshal(document, &d); err != nil {
		panic(err) // cannot happen: the document is embedded
	}
	return d.Components.Schemas.WorkKind.Descriptions
})

// getCatalogue answers with what jobs can do on this server.
func (a *API) getCatalogue(*call) (answer, error) {
	view := catalogueView{Types: a.cfg.Catalogue.Types}
	for _, kind := range a.cfg.Catalogue.Offered() {
		spec, _ := job.SpecOf(kind, a.cfg.Catalogue.MaxRuntime)
		view.Kinds = append(view.Kinds, kindView{kind, kindDescriptions()[kind], spec.ShouldFail, spec.DurationMS, spec.Expected})
	}
	return asJSON(http.StatusOK, view)
}
