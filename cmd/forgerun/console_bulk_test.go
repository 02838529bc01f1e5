package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// axe checks pages for what keeps people with disabilities from using them.
const (
	axeFile = "testdata/axe/axe.min.js"
	axeSum  = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
)

func TestAxeIsAsPublished(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(axeFile)
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	require.Equal(t, axeSum, hex.EncodeToString(sum[:]))
}

// accessible checks that axe finds nothing serious or critical in the page as it is.
func (c *consoleTab) accessible(at string) {
	c.t.Helper()
	if !evaluate[bool](c, `!!window.axe`) {
		text, err := os.ReadFile(axeFile)
		require.NoError(c.t, err)
		// While a page is read again it is dimmed for a moment, which is not what its contrast is meant to be.
		const undimmed = `; (sheet => { sheet.replaceSync(".page { opacity: 1 !important; transition: none !important }");
			document.adoptedStyleSheets = [sheet]; })(new CSSStyleSheet()); true`
		evaluate[bool](c, string(text)+undimmed)
	}
	found := evaluate[string](c, `axe.run(document, { resultTypes: ["violations"] }).then(r => JSON.stringify(
		r.violations.filter(v => v.impact === "serious" || v.impact === "critical").map(v => [v.id, v.impact,
			v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + " " + (n.any[0]?.message || n.failureSummary || ""))])))`)
	var violations []any
	require.NoError(c.t, json.Unmarshal([]byte(found), &violations))
	require.Empty(c.t, violations, at)
}

// An operator retries all jobs that match, sees how far it is, and stops it; another process shows the same.
func TestConsoleBulk(t *testing.T) {
	t.Parallel()
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": "ann:" + operatorsToken, "FORGERUN_WORKER_CONCURRENCY": "50"})
	api, other := s.startLeader(), s.startAPI()
	s.startWorker()
	u := s.newUser(api)
	const n = 1000
	ids := u.submitAlike(api, n, execute("RETRY_ON_FAIL"))
	s.await("FAILED", ids...)
	c := newConsole(t, s, api)
	c.login(operatorsToken)
	c.open("jobs?state=FAILED")
	c.press("Retry all that match…")
	c.says("1,000 jobs match")
	c.fill("rate", "10") // so that it lasts, however slow the browsers are
	c.press("Retry 1,000")
	c.until("the page of the operation", `location.hash.startsWith("#/bulk/") && document.body.innerText.includes("RUNNING")`)
	c.until("progress, live", `document.querySelector("progress").value >= 50`)
	c.do(chromedp.EmulateViewport(1440, 700))
	shot, err := inPage(c.ctx, chromedp.FullScreenshot(80))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), "bulk-running.jpg"), shot, 0o600))
	second := newConsole(t, s, other)
	second.login(operatorsToken)
	second.open("bulk")
	second.says("RUNNING")
	c.press("Stop")
	c.says("Stop this change?")
	c.press("Stop it")
	c.says("ABORTED")
	second.says("ABORTED")
	done := s.count(`SELECT count(*) FROM bulk_items WHERE result = 'SUCCEEDED'`)
	require.GreaterOrEqual(t, done, 50)
	require.Less(t, done, n)
	require.Equal(t, done, s.count(`SELECT count(*) FROM events WHERE event_name = 'job.retried'`))
	c.says(fmt.Sprintf("%d of 1,000", done))
	c.open("audit")
	c.says("abort_bulk")
	c.noneWrong()
	second.noneWrong()
}
