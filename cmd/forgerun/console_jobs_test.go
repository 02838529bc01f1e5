package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func (c *consoleTab) search(text string) {
	c.t.Helper()
	c.fill("q", text)
	evaluate[bool](c, `(document.querySelector("form.search").requestSubmit(), true)`)
}

func (c *consoleTab) at(address string) {
	c.t.Helper()
	c.until("the page "+address, fmt.Sprintf(`location.hash === %q`, "#/"+address))
}

// The timeline's axis ends with the job's last attempt, even if deliveries are later. Deliveries are collapsed, and grouped by receiver.
func TestConsoleTimeline(t *testing.T) {
	s, api, u := newDelivering(t)
	failing := u.receive(api, withStatus(http.StatusInternalServerError))
	id := u.submitAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST"))
	eventually(t, "an attempt to deliver failed", func() bool {
		return s.count(`SELECT count(*) FROM delivery_attempts WHERE status = 500`) > 0
	})
	s.exec(`UPDATE deliveries SET created_at = created_at - interval '1 day' WHERE job_id = $1`, id)
	c := newConsole(t, s, api)
	c.everyLook(func(look string) {
		c.open("jobs/" + id)
		c.until("the deliveries", `!!document.querySelector(".timeline details.sent")`)
		require.False(t, evaluate[bool](c, `document.querySelector(".timeline details.sent").open`))
		shown := evaluate[[]string](c, fmt.Sprintf(`(async () => {
			const { span } = await import("/console/format.js"), job = await (await fetch("admin/v1/jobs/%s")).json();
			const times = job.events.map(e => new Date(e.timestamp));
			return [document.querySelector(".timeline > .axis .at-100").textContent, "+" + span(Math.max(...times) - Math.min(...times))];
		})()`, id))
		require.Equal(t, shown[1], shown[0], "the axis ends with the last attempt")
		evaluate[bool](c, `(document.querySelector(".timeline details.sent").open = true)`)
		host := evaluate[string](c, fmt.Sprintf(`new URL(%q).host`, failing.url))
		c.says(host + " · webhook …" + failing.hook.id[len(failing.hook.id)-12:])
		c.seen("timeline-" + look)
		evaluate[bool](c, `(document.querySelector(".timeline details.sent").open = false, true)`)
	})
}

// A dry run counts the jobs that can be changed. It also shows why the other jobs cannot be changed. An operation that changed nothing
// is not shown as a success.
func TestConsoleBulkWithoutEligibleJobs(t *testing.T) {
	s, api, u := newWorking(t)
	const n = 27
	failed := u.submitCopies(api, n, execute("FAIL_IMMEDIATE"))
	again := u.submitCopies(api, 2, execute("RETRY_ON_FAIL"))
	s.await("FAILED", append(failed, again...)...)
	begun := s.operator("").expect(api, http.StatusAccepted, "POST", "/admin/v1/bulk", `{"action":"retry","filter":{"kind":"FAIL_IMMEDIATE"}}`)
	const reason = `document.body.innerText.split("failure is not retryable").length - 1`
	c := newConsole(t, s, api)
	c.everyLook(func(look string) {
		c.open("jobs?kind=FAIL_IMMEDIATE")
		c.press("Retry all matching jobs…")
		c.says("27 jobs match, none can be retried")
		require.Equal(t, 1, evaluate[int](c, reason))
		require.True(t, evaluate[bool](c, `document.querySelector("dialog .buttons button:last-child").disabled`), "there is nothing to do")
		c.seen("bulk-nothing-" + look)
		evaluate[bool](c, `(document.querySelector("dialog [name=override]").click(), true)`)
		c.says("27 jobs match.")
		c.until("the button", `document.querySelector("dialog .buttons button:last-child").textContent === "Retry 27"`)
		c.press("Back")

		c.open("jobs?state=FAILED")
		c.press("Retry all matching jobs…")
		c.says("29 jobs match, 2 can be retried")
		c.seen("bulk-some-" + look)
		c.press("Back")

		c.open("bulk/" + begun.text("bulk_id"))
		c.says("ALL FAILED")
		require.False(t, evaluate[bool](c, `!!document.querySelector("main .s-done")`), "the operation is not shown as a success")
		c.until("one reason with its number", reason+` === 1 && document.querySelector("main table td.num").textContent === "27"`)
		c.seen("bulk-failed-" + look)
	})

	c.open("failures")
	c.says("none")
	c.seen("failures")
	c.press("Retry 2…")
	c.says("2 jobs match")
	c.press("Retry 2")
	c.until("the page of the operation", `location.hash.startsWith("#/bulk/")`)
	c.says("DONE")
	s.await("SUCCEEDED", again...)
}

func TestConsoleSearch(t *testing.T) {
	s, api, u := newDelivering(t)
	hook := u.receive(api, nil)
	id := u.submitAndAwait(api, "SUCCEEDED", execute("SUCCESS_FAST", `"correlation_id":"order-4711"`))
	batch := u.submitBatch(api, `{"jobs":[`+execute("SUCCESS_FAST")+`]}`)
	eventually(t, "a delivery", func() bool { return s.count(`SELECT count(*) FROM deliveries`) > 0 })
	delivery := s.text(`SELECT delivery_id::text FROM deliveries LIMIT 1`)
	c := newConsole(t, s, api)
	for text, page := range map[string]string{
		id: "jobs/" + id, batch: "batches/" + batch, delivery: "deliveries/" + delivery, u.id: "clients/" + u.id,
		"order-4711": "jobs/" + id, "r-47": "jobs/" + id,
		"cpu_burst": "jobs?kind=CPU_BURST", "failed since:2h": "", unknownJob: "search?q=" + unknownJob,
	} {
		c.open("system")
		c.search(text)
		if page == "" {
			c.until("filters", `location.hash.startsWith("#/jobs?state=FAILED&from=")`)
			continue
		}
		c.at(page)
	}
	c.search(hook.hook.id)
	c.until("the webhook", fmt.Sprintf(`location.hash !== "#/search?q=%s"`, hook.hook.id))

	c.everyLook(func(look string) {
		c.search("kind:cpu")
		c.says("“CPU” is not a valid work kind. Did you mean CPU_BURST?")
		require.Equal(t, 1, evaluate[int](c, `document.querySelectorAll("main .note").length`), "the message appears once")
		require.True(t, evaluate[bool](c, `!!document.querySelector("main .filters") && document.querySelector("#search").value === "kind:CPU"`))
		c.seen("search-unknown-kind-" + look)
		c.search("success")
		c.says("SUCCESS_SLOW")
		c.seen("search-many-" + look)
		c.search("nothing is called so")
		c.says("Nothing was found for “nothing is called so”.")
		c.seen("search-nothing-" + look)
	})
}

func TestConsoleSubmitsAndLists(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_TIME_SCALE": "3"}) // RUNS_LONG takes minutes
	s.await("SUCCEEDED", u.submit(api, execute("SUCCESS_FAST")))
	c := newConsole(t, s, api)
	c.open("new")
	c.fill("client_id", u.id)
	c.fill("work_kind", "RUNS_LONG")
	c.press("Submit")
	c.says("1 job submitted.")
	id := s.text(`SELECT job_id::text FROM jobs WHERE work_kind = 'RUNS_LONG'`)
	c.at("jobs/" + id + "?submitted")
	c.until("the whole id, and a button that copies it",
		fmt.Sprintf(`(text => text.includes(%q) && text.includes("Copy id"))(document.querySelector("main .note").innerText)`, id))
	s.await("RUNNING", id)
	c.everyLook(func(look string) {
		c.open("jobs/" + id)
		c.seen("submitted-" + look)
		c.open("jobs")
		c.until("progress of the running job", `!!document.querySelector("td progress")`)
		c.until("run times of ended jobs", `[...document.querySelectorAll('td[data-label="Ran"]')].some(td => /^\d.* m?s$/.test(td.textContent))`)
		c.seen("jobs-columns-" + look)
		c.open("new")
		c.fill("client_id", u.id)
		c.fill("work_kind", "SUCCESS_FAST")
		evaluate[bool](c, `(number => (number.value = "3", number.dispatchEvent(new Event("input", { bubbles: true }))))(
			document.querySelector("main input[type=number]"))`)
		c.press("Submit 3 jobs")
		c.says("3 jobs submitted")
		c.seen("burst-" + look)
	})
}

// The console reports missing pages and missing jobs as such, not as a lost connection. A dialog closes when the user leaves its page.
func TestConsoleNavigation(t *testing.T) {
	s, api, u := newService(t)
	id := u.submit(api, farAway)
	c := newConsole(t, s, api)
	for _, address := range []string{"nothing", "workers/" + noSuchJob, "jobs/" + id + "/more"} {
		evaluate[string](c, fmt.Sprintf(`location.hash = %q`, "#/"+address))
		c.says("No such page")
		c.until("the address stays", fmt.Sprintf(`location.hash === %q`, "#/"+address))
	}
	for _, address := range []string{"jobs/" + noSuchJob, "webhooks/" + noSuchJob, "batches/" + noSuchJob, "jobs/no-id"} {
		c.open(address)
		c.until("the refusal of "+address,
			`!!document.querySelector(".page .note.bad") && document.querySelector("button.live").innerText === "Live"`)
	}
	c.open("jobs/" + id)
	c.press("Cancel…")
	c.until("the dialog", `!!document.querySelector("dialog[open]")`)
	c.open("workers")
	c.until("no dialog", `!document.querySelector("dialog") && document.activeElement.id === "main"`)
	c.setLook(390, "light")
	c.open("jobs")
	c.until("a job's row is short on a phone", `(row => !!row && row.offsetHeight < 150)(document.querySelector(".rows tbody tr"))`)
	c.seen("jobs-390")
}

func TestConsoleSchedules(t *testing.T) {
	s, api, u := newWorking(t)
	c := newConsole(t, s, api)
	c.open("schedules")
	c.press("New schedule…")
	c.fill("client_id", u.id)
	c.fill("name", "nightly report")
	c.fill("cron", "30 4 * * never")
	c.fill("work_kind", "SUCCESS_FAST")
	c.press("Create")
	c.says("This must be a cron expression")
	c.fill("cron", "30 4 * * MON-FRI")
	c.fill("time_zone", "Europe/Berlin")
	c.press("Create")
	c.says("The schedule has not run yet.")
	id := s.text(`SELECT schedule_id::text FROM schedules WHERE name = 'nightly report'`)
	c.at("schedules/" + id)
	c.press("Run now…")
	c.press("Run now")
	c.until("the job", `location.hash.startsWith("#/jobs/")`)
	job := s.text(`SELECT job_id::text FROM jobs WHERE schedule_id = $1`, id)
	c.at("jobs/" + job)
	s.await("SUCCEEDED", job)
	c.everyLook(func(look string) {
		c.open("schedules")
		c.says("nightly report")
		c.says("SUCCESS_FAST")
		c.seen("schedules-" + look)
		c.open("schedules/" + id)
		c.until("the run", fmt.Sprintf(`!!document.querySelector('a[href="#/jobs/%s"]')`, job))
		c.seen("schedule-" + look)
		c.press("Pause…")
		c.seen("schedule-dialog-" + look)
		c.press("Back")
	})
	c.setLook(390, "dark")
	c.open("schedules")
	c.seen("schedules-390")
	c.until("a short row", `(row => !!row && row.offsetHeight < 220)(document.querySelector(".rows tbody tr"))`)
	c.open("schedules/" + id)
	c.seen("schedule-390")
	c.open("jobs?schedule_id=" + id)
	c.until("only the runs of the schedule", `document.querySelectorAll(".rows tbody tr").length === 1`)
	c.open("schedules/" + id)
	c.press("Delete…")
	c.press("Delete")
	c.at("schedules")
	c.says("No schedules.")
}

const noSuchJob = "0192f1a0-0000-7000-8000-000000000000"
