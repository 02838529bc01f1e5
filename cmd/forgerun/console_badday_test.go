package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A receiver fails, a worker hangs and another worker has died. The overview links to each problem. Its numbers match the database.
func TestConsoleOnABadDay(t *testing.T) {
	s := newStack(t, env{
		"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_LEASE_TIMEOUT": "1h", "FORGERUN_TIME_SCALE": "1",
		"FORGERUN_WEBHOOK_BACKOFF_BASE": "24h", "FORGERUN_WEBHOOK_BACKOFF_MAX": "24h", "FORGERUN_WEBHOOK_MAX_RETRIES": "1",
	})
	api := s.startLeader()
	s.startDeliverer()
	u := s.newUser(api)
	s.operator(operatorsToken).expect(api, http.StatusOK, "POST", "/admin/v1/clients/"+u.id+"/name", `{"name":"Billing"}`)
	receiver := u.receive(api, withStatus(http.StatusServiceUnavailable))
	c := newConsole(t, s, api)
	c.login(operatorsToken)
	c.says("No worker is alive: submitted jobs do not run.")

	worker := s.startWorker()
	u.submitMany(api, 8, execute("RUNS_LONG"))
	u.submit(api, farAway)
	s.awaitCount("the slots are full", 4, `SELECT count(*) FROM jobs WHERE state = 'RUNNING'`)
	s.awaitCount("the webhook fails", 1, `SELECT count(*) FROM webhooks WHERE consecutive_failures >= 16`)
	delivery := s.text(`SELECT delivery_id::text FROM deliveries WHERE attempts = 1 LIMIT 1`)
	u.call(api, "POST", "/v1/webhooks/"+receiver.hook.id+"/deliveries/"+delivery+"/redeliver", "")
	worker.pause()
	s.exec(`UPDATE workers SET heartbeat_at = heartbeat_at - interval '31 min', expires_at = expires_at - interval '31 min'`)
	s.exec(`INSERT INTO workers (worker_id, name, concurrency, state, expires_at)
		VALUES ('ffffffff-ffff-4fff-bfff-ffffffffffff', 'dead', 4, 'DEAD', now())`)

	pages := []struct {
		page  string
		shows []string
	}{
		{"overview", []string{"has sent no heartbeat for 3", " and holds 4 jobs. ", "1 webhook fails: ", "1 worker died in the last",
			"none is due · next attempt", "1 later, the next in"}},
		{"webhooks", []string{"FAILING", "Billing"}},
		{"webhooks/" + receiver.hook.id, []string{
			"attempts in a row failed", "HTTP 503 from 127.0.0.1:", "Latest deliveries", "job.created", "Billing"}},
		{"workers", []string{"SILENT", "DEAD", "The worker hangs, is stopped, or cannot reach Postgres."}},
		{"clients", []string{"Billing", u.id}},
		{"clients/" + u.id, []string{"Client Billing", "Name…"}},
		{"deliveries", []string{"PENDING", "Billing"}},
		{"deliveries/" + delivery, []string{"503", "Billing"}},
	}
	c.everyLook(func(at string) {
		for _, p := range pages {
			c.open(p.page)
			for _, text := range p.shows {
				c.says(text)
			}
			name, _, one := strings.Cut(p.page, "/")
			c.seen(fmt.Sprintf("%s-%t-%s", name, one, at))
		}
	})
	c.open("workers")
	c.until("live workers come first",
		`[...document.querySelectorAll(".worker")].map(w => w.innerText.includes("DEAD")).join() === "false,true"`)
	c.open("deliveries?event_name=job.finished")
	c.says("“job.finished” is not a valid event.")
	c.says("Remove this filter")
	c.open("overview")
	c.until("a link to the webhook", `!!document.querySelector('.attention a[href="#/webhooks/`+receiver.hook.id+`"]')`)
	c.open("webhooks/" + receiver.hook.id)
	c.press("Disable…")
	c.press("Disable")
	c.says("Disabled since")
	c.press("Enable…")
	c.press("Enable")
	c.says("ENABLED")
	c.open("clients/" + u.id)
	c.press("Name…")
	c.fill("name", "Shipping")
	c.press("Name it")
	c.says("Client Shipping")
	c.open("webhooks")
	c.says("Shipping")
}
