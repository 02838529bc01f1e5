package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Operators of a test bed see the clients, verdicts and faults of sessions, during a session and after its end.
func TestConsoleOfATestbed(t *testing.T) {
	s, api, u := newService(t, withTestbed)
	ended := u.startSession(api, `{"rules":["idempotency-key","one-job-per-intention","backoff","retry-after","no-key-in-url",
		"lost-answer","outcome-learned","correlation-ids"]}`)
	u.disturb(api, `[{"match":{"operation":"submitJob","nth":1},"effect":{"close":"after_commit"}},
		{"match":{"operation":"submitJob","nth":2},"effect":{"status":503,"retry_after":5}},
		{"match":{"operation":"getJob","every":3},"effect":{"delay":"10ms"}}]`)
	for _, key := range []string{"one", "two", "three"} {
		_, _, err := u.sendUnchecked(api, "POST", "/v1/jobs", execute("SUCCESS_FAST"), "Idempotency-Key", key, "X-Correlation-ID", "<i>order</i>")
		require.True(t, err == nil || strings.Contains(err.Error(), io.EOF.Error()), err)
	}
	_, broken := u.verdict(api, ended)
	require.NotEmpty(t, broken)
	other := s.newUser(api)
	running := other.startSession(api, `{"profile":"flaky-network","seed":11}`)
	for range 3 {
		_, _, _ = other.sendUnchecked(api, "GET", "/v1/jobs", "") // the profile loses some responses, so ignore errors
	}

	c := newConsole(t, s, api)
	c.everyLook(func(at string) {
		c.open("sessions")
		c.says("FAILED")
		c.says("flaky-network")
		c.says("RUNNING")
		c.seen("sessions-" + at)
		c.open("sessions/" + ended)
		c.says("not tested: ")
		c.says("response lost after processing")
		c.says("The client repeated the submission with another Idempotency-Key.")
		c.says("<i>order</i>") // shown as text, not as markup
		c.seen("session-ended-" + at)
		c.open("sessions/" + running)
		c.says("This is preliminary: the session is still open.")
		c.says("never triggered")
		c.seen("session-running-" + at)
		c.open("faults")
		c.says("close: after_commit")
		c.seen("faults-" + at)
		c.open("overview")
		c.says("Clock of the test bed")
		c.seen("overview-testbed-" + at)
	})
	c.open("faults?client_id=" + other.id)
	c.until("the rules of one client", `document.querySelectorAll("main tbody tr").length > 5 &&
		new Set([...document.querySelectorAll("main tbody a.id")].map(a => a.title)).size === 1`)
	c.open("sessions/" + ended)
	page := evaluate[string](c, `fetch("admin/v1/testbed/sessions/`+ended+`/verdict.html").then(r => r.text())`)
	require.Regexp(t, `(?s)^<!doctype html>.*FAILED: `, page)
	c.until("a link to the page", `!!document.querySelector('a[href$="/verdict.html"]')`)

	// A new request appears at once in the list. The verdict follows some seconds later.
	c.open("sessions/" + running)
	_, _, _ = other.sendUnchecked(api, "GET", "/v1/jobs", "")
	c.until("the new request", `[...document.querySelectorAll(".facts div")].some(d => d.innerText.replace(/\s+/g, " ") === "Requests 4")`)
	require.Equal(t, http.StatusOK, other.call(api, "POST", "/v1/testbed/sessions/"+running+"/end", "").status)
	c.says("ENDED")

	c.setLook(390, "light")
	c.open("sessions")
	c.press("Start a session…")
	c.fill("client_id", other.id)
	c.fill("profile", "overloaded")
	c.seen("session-start-390")
	c.press("Start")
	c.says("This is preliminary: the session is still open.")
	c.says("overloaded")
	c.press("End…")
	c.press("End")
	c.says("ENDED")
}

// On the overview, an operator moves the service's clock. Read-only operators see the clock, but no buttons.
func TestConsoleMovesTheClock(t *testing.T) {
	s, api, u := newService(t, withTestbed, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_ADMIN_READ_TOKEN": readersToken})
	began := u.clock(api).Now
	tomorrow := u.submit(api, customAt(began.Add(24*time.Hour)))
	c := newConsole(t, s, api)
	c.login(operatorsToken)
	c.says("Clock of the test bed")
	c.press("+ 1 h")
	c.says("the clock of the whole service, for all clients")
	c.press("Back")
	require.Less(t, u.clock(api).Now.Sub(began), time.Hour)
	c.press("+ 1 h")
	c.press("Move it")
	c.until("the dialog closes", `!document.querySelector("dialog")`)
	require.GreaterOrEqual(t, u.clock(api).Now.Sub(began), time.Hour)
	require.Equal(t, "CREATED", s.state(tomorrow))
	c.says("To the next due job (in 22 h")
	c.press("To the next due job")
	c.press("Move it")
	c.until("the dialog closes", `!document.querySelector("dialog")`)
	require.Equal(t, "QUEUED", s.state(tomorrow))
	c.until("no job is due", `![...document.querySelectorAll("button")].some(b => b.textContent.startsWith("To the next"))`)
	c.press("Freeze")
	c.press("Freeze")
	c.says("frozen")
	require.True(t, u.clock(api).Frozen)
	c.open("jobs/" + tomorrow)
	c.until("ages by the service's clock",
		`(text => / ago|now/.test(text) && !/in 2\d h/.test(text))(document.querySelector("main").innerText)`)
	c.open("audit")
	c.says(`{"freeze":true}`)

	reader := newConsole(t, s, api)
	reader.login(readersToken)
	reader.says("Clock of the test bed")
	reader.until("no button", `![...document.querySelectorAll("button")].some(b => /^(\+|Let it run)/.test(b.textContent))`)
}
