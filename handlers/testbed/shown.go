package testbed

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/handlers/disturb"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/wire"
)

// shown records the job states in the response, as the client sees them.
func (v *visit) shown(x *verdict.Exchange) {
	r := v.Request
	if v.impliesEnd(x) {
		wire.Show(x, x.Job, true)
		return
	}
	if x.Status >= 300 || !bytes.Contains(r.Response().Header.ContentType(), []byte("json")) {
		return
	}
	document := r.Response().Body()
	body := document
	if disturb.Rewrites(v.fault, r.Response()) {
		body = testbed.Shape.Rewrite(v.fault, document)
	}
	var doc struct {
		ID     job.ID `json:"job_id"`
		Draft  job.ID `json:"jobId"`
		Batch  job.ID `json:"batch_id"`
		Counts *api.BatchCounts
		Data   []struct {
			ID      job.ID `json:"job_id"`
			Result  job.BulkResult
			Outcome job.Outcome
		}
	}
	_ = json.Unmarshal(body, &doc) // on an error, the fields of doc stay empty
	switch {
	case x.Role == verdict.Submit:
		x.Made = testbed.IDOf(cmp.Or(doc.ID, doc.Draft))
	case x.Role == verdict.SubmitMany:
		x.Made = testbed.IDOf(doc.Batch)
	case doc.Counts != nil && open(doc.Counts) == 0: // all jobs of the batch have ended
		wire.Show(x, testbed.IDOf(doc.Batch), true)
	case x.Operation == "listAttempts" && len(doc.Data) > 0 && doc.Data[len(doc.Data)-1].Outcome != "":
		wire.Show(x, x.Job, true)
	case x.Operation == "listBulkItems":
		for _, item := range doc.Data {
			if item.Result != job.ItemPending {
				wire.Show(x, testbed.ItemOf(r.PathID(), item.ID), true)
			}
		}
	}
	if disturb.Rewrites(v.fault, r.Response()) {
		testbed.Shape.Rewritten(v.fault, document, x)
		return
	}
	testbed.Shape.Jobs(body, x)
}

func open(c *api.BatchCounts) int { return c.Created + c.Queued + c.Assigned + c.Running }

// impliesEnd reports whether the response shows no job state, but implies that the job in the path has ended.
func (v *visit) impliesEnd(x *verdict.Exchange) bool {
	if v.fault != nil && v.fault.Replaces() {
		return false
	}
	switch x.Operation {
	case "getReport":
		return x.Status < 300
	case "getResult":
		return x.Status < 300 || x.Status == fiber.StatusNotModified || x.Code == string(job.CodeResultNotFound) ||
			x.Code == string(job.CodeResultGone)
	case "jobEvents":
		return x.Status == fiber.StatusNoContent
	case "retryJob":
		return v.Failed != nil && v.Failed.State.Final()
	}
	return false
}
