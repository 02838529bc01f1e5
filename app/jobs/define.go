package jobs

import (
	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// define makes the job that r asks for, or says why there is none.
func (s *Service) define(r job.Request) (job.Job, []job.Violation) {
	var definition job.Definition
	if r.WorkKind == job.Custom {
		definition = job.DefineCustom(r.Type, r.Behavior, r.ReceivedAt, r.Emit)
	} else {
		var err error
		if definition, err = s.cfg.Catalogue.Define(r.Type, r.WorkKind, r.ReceivedAt, r.Emit); err != nil {
			return job.Job{}, []job.Violation{{Pointer: "/work_kind", Detail: "No work kind is available."}}
		}
	}
	j := job.Job{
		ID: app.NewID(), ClientID: r.ClientID, Type: r.Type, WorkKind: definition.WorkKind, Definition: &definition, Params: r.Params,
		MaxAttempts: s.cfg.MaxAttempts, AutoRetry: r.AutoRetry, ExecutionAt: r.ExecutionAt, Callback: r.Callback,
		CorrelationID: r.CorrelationID, TraceParent: r.TraceParent, Language: r.Language, RequestID: r.RequestID,
	}
	j.WithRetry(r.Retry)
	return j, nil
}
