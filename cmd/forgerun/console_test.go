package main

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// The console tells what is of all processes and what of this one; the former
// only where it is counted.
func TestConsoleInABrowser(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newStack(t)
	leader, other := s.startLeader(), s.startAPI()
	s.newUser(leader).submitMany(leader, 3, execute("SUCCESS_FAST"))
	eventually(t, "they are counted", func() bool { return sum(leader.scrape(), "job_queue_depth") == 3 })
	read := func(p *proc) (text string) {
		t.Helper()
		require.NoError(t, chromedp.Do(b.ctx, chromedp.Navigate("http://"+p.logged("admin listening")["address"].(string)+"/"),
			chromedp.WaitVisible(`//caption[text()="This process since its start"]`)))
		text, err := chromedp.Run(b.ctx, chromedp.Text("body"))
		require.NoError(t, err)
		return text
	}
	page := read(leader)
	for _, row := range []string{`Jobs in QUEUED\s+3\n`, `Oldest due job waits for, seconds\s+\d+\n`, `Workers alive\s+0\n`,
		`Their slots\s+0\n`, `Deliveries pending\s+0\n`, `jobs, pending\s+3\n`, `webhooks, pending\s+0\n`, `Jobs submitted\s+3\n`} {
		require.Regexp(t, row, page)
	}
	page = read(other)
	require.Contains(t, page, "another process leads")
	require.NotContains(t, page, "Workers alive")
	require.Regexp(t, `jobs, pending\s+3\n`, page)
	require.Regexp(t, `Jobs submitted\s+0\n`, page)
}
