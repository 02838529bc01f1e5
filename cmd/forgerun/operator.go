package main

import (
	"net/http"
	"time"

	"github.com/forgerun/forgerun/app/bulk"
	"github.com/forgerun/forgerun/app/clients"
	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/erasures"
	"github.com/forgerun/forgerun/app/overview"
	"github.com/forgerun/forgerun/app/pauses"
	"github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
)

// newOperatorAPI returns the operator API, which every role serves. The API reads everything from Postgres, so all processes send the same
// responses. Operators and clients change jobs through the same use cases, but operators have no rate limit and no job limits. The handler
// `pages` serves all other paths of the admin listener.
func (p *process) newOperatorAPI(guard operators.Guard, pages http.Handler) *operator.API {
	var bed *testbed.Operators
	if p.cfg.TestBed {
		bed = &testbed.Operators{
			Store: p.store, Bed: p.testbed, Time: &testbed.Clock{Store: p.store, Schedule: p.maintenance.Schedule},
		}
	}
	service := p.newJobs(nil, nil)
	return operator.New(operator.Config{
		PublicURL: p.cfg.PublicURL, Version: version, Timeout: p.cfg.requestTimeout(), Mask: p.cfg.MaskParams, TraceURL: p.cfg.TraceURL,
		Hosts:      p.hosts(p.cfg.AdminAddr, !p.cfg.Operators().None()),
		Limits:     operator.Limits{ClientRunning: p.cfg.ClientMaxRunning, ClientActive: p.cfg.ClientMaxActive},
		MaxPayload: httpkit.MaxPayload, Catalogue: p.cfg.catalogue(),
	}, operator.Deps{
		Guard: guard, Pages: pages,
		Store: p.store.Admin(), Overview: overview.Service{Store: p.store}.Overview, Bulk: bulk.New(p.store, p.log),
		Schedules: p.newSchedules(service), Webhooks: delivery.NewWebhooks(p.webhooksDeps()),
		Erasures: erasures.New(p.store, p.log), Pauses: pauses.New(p.store, p.log), Stopped: allPauses{p}.Now, Testbed: bed,
		Progress: p.queue.Progress, CursorKey: p.store.CursorKey, Log: p.log,
		Jobs:    service,
		Clients: clients.New(p.cfg.clients(), p.store, time.Now, p.log),
	})
}

func (c Config) catalogue() job.Catalogue {
	return job.Catalogue{Types: c.JobTypes, Kinds: c.WorkKinds, FailProbability: c.FailProbability, MaxRuntime: c.MaxRuntime,
		TestBed: c.TestBed}
}
