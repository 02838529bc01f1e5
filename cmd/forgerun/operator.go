package main

import (
	"github.com/forgerun/forgerun/handlers/operator"
)

// newOperatorAPI makes the operator API, which every role has: it reads from Postgres, so that each process answers alike.
func (p *process) newOperatorAPI() *operator.API {
	return operator.New(operator.Config{
		PublicURL: p.cfg.PublicURL, Version: version, Timeout: p.cfg.RequestTimeout, Mask: p.cfg.MaskParams,
		Limits: operator.Limits{ClientRunning: p.cfg.ClientMaxRunning, ClientActive: p.cfg.ClientMaxActive, Window: p.cfg.DispatchWindow},
	}, operator.Deps{
		Reader: p.store.Admin(), Progress: p.queue, CursorKey: p.store.CursorKey, Log: p.log,
	})
}
