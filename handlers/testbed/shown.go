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

// shown notes which jobs the answer shows, as the client sees them.
func (v *visit) shown(x *verdict.Exchange) {
	r := v.Request
	if v.tellsEnd(x) {
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
	_ = json.Unmarshal(body, &doc) // what has another form shows nothing of this
	switch {
	case x.Role == verdict.Submit:
		x.Made = testbed.IDOf(cmp.Or(doc.ID, doc.Draft))
	case x.Role == verdict.SubmitMany:
		x.Made = testbed.IDOf(doc.Batch)
	case doc.Counts != nil && open(doc.Counts) == 0: // of a batch, before or after its outcome was taken
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

// open counts the items of a batch that have not ended.
func open(c *api.BatchCounts) int { return c.Created + c.Queued + c.Assigned + c.Running }

// tellsEnd reports whether the answer says that the job which the path names has ended, other than by showing its state.
func (v *visit) tellsEnd(x *verdict.Exchange) bool {
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
