package apptest

import (
	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// subscribe stores a webhook as another process would.
func (w *World) Subscribe(client job.ID) *webhookRow {
	r := &webhookRow{Webhook: job.Webhook{ID: app.NewID(), ClientID: client}}
	w.Store.Meddle(func() { w.Store.Hooked[r.ID] = r })
	return r
}
