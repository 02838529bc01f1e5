package handlers

import (
	"bytes"
	"cmp"
	"encoding/json"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/disturb"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/wire"
)

// shown notes which jobs the answer shows, as the client sees them.
func (r *call) shown(x *verdict.Exchange) {
	if r.tellsEnd(x) {
		wire.Show(x, x.Job, true)
		return
	}
	if x.Status >= 300 || !bytes.Contains(r.Response().Header.ContentType(), []byte("json")) {
		return
	}
	document := r.Response().Body()
	body := document
	if disturb.Rewrites(r.fault, r.Response()) {
		body = testbed.Shape.Rewrite(r.fault, document)
	}
	var v struct {
		ID     job.ID `json:"job_id"`
		Draft  job.ID `json:"jobId"`
		Batch  job.ID `json:"batch_id"`
		Counts *countsView
		Data   []struct {
			ID      job.ID `json:"job_id"`
			Result  job.BulkResult
			Outcome job.Outcome
		}
	}
	_ = json.Unmarshal(body, &v) // what has another form shows nothing of this
	switch {
	case x.Role == verdict.Submit:
		x.Made = testbed.IDOf(cmp.Or(v.ID, v.Draft))
	case x.Role == verdict.SubmitMany:
		x.Made = testbed.IDOf(v.Batch)
	case v.Counts != nil && v.Counts.open() == 0: // of a batch, before or after its outcome was taken
		wire.Show(x, testbed.IDOf(v.Batch), true)
	case x.Operation == "listAttempts" && len(v.Data) > 0 && v.Data[len(v.Data)-1].Outcome != "":
		wire.Show(x, x.Job, true)
	case x.Operation == "listBulkItems":
		for _, item := range v.Data {
			if item.Result != job.ItemPending {
				wire.Show(x, testbed.ItemOf(r.bulkID, item.ID), true)
			}
		}
	}
	if disturb.Rewrites(r.fault, r.Response()) {
		testbed.Shape.Rewritten(r.fault, document, x)
		return
	}
	testbed.Shape.Jobs(body, x)
}

// tellsEnd reports whether the answer says that the job which the path names has ended, other than by showing its state.
func (r *call) tellsEnd(x *verdict.Exchange) bool {
	if r.fault != nil && r.fault.Replaces() {
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
		return r.failed != nil && r.failed.State.Final()
	}
	return false
}
