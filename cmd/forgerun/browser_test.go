package main

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/fetch"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	chromium "github.com/forgerun/forgerun/internal/testkit/browser"
)

// browser is a tab of a headless Chromium that answers every request for a password.
type browser struct {
	ctx context.Context

	mu    sync.Mutex
	hosts []string // hosts that the browser requested
}

// newBrowser opens a tab of the browser that all tests share.
func newBrowser(t *testing.T, password string) *browser {
	t.Helper()
	ctx := chromium.Tab(t)
	b := &browser{ctx: ctx}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *fetch.EventRequestPaused:
			if u, err := url.Parse(e.Request.URL); err == nil && u.Scheme != "data" {
				b.mu.Lock()
				b.hosts = append(b.hosts, u.Host)
				b.mu.Unlock()
			}
			go func() {
				_, _ = chromedp.Call(ctx, fetch.ContinueRequest, fetch.ContinueRequestParams{RequestID: e.RequestID})
			}()
		case *fetch.EventAuthRequired:
			answer := fetch.AuthChallengeResponse{
				Response: fetch.AuthChallengeResponseResponseProvideCredentials, Username: "anybody", Password: password,
			}
			go func() {
				_, _ = chromedp.Call(ctx, fetch.ContinueWithAuth, fetch.ContinueWithAuthParams{RequestID: e.RequestID, AuthChallengeResponse: &answer})
			}()
		}
	}))
	handle := true
	_, err := chromedp.Call(ctx, fetch.Enable, fetch.EnableParams{HandleAuthRequests: &handle})
	require.NoError(t, err)
	return b
}

// inPage runs one step in a browser's page, with the usual timeout of tests.
func inPage[T any](ctx context.Context, step chromedp.Action[T]) (T, error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	return chromedp.Run(ctx, step)
}

// Asynqmon shows both queues to an operator with the token, and loads nothing from other hosts.
func TestQueueDashboardInABrowser(t *testing.T) {
	const token = "an-operators-long-token"
	s, api, u := newDelivering(t, env{"FORGERUN_ADMIN_TOKEN": token})
	b := newBrowser(t, token)
	u.subscribe(api, newReceiver(t, nil).url, "*")
	s.awaitFinal(u.submitMany(api, 5, execute("SUCCESS_FAST"))...)
	admin := api.logged("admin listening")["address"].(string)

	require.NoError(t, chromedp.Do(b.ctx, chromedp.Navigate("http://"+admin+"/asynqmon/"),
		chromedp.WaitVisible(`//a[text()="jobs"]`), chromedp.WaitVisible(`//a[text()="webhooks"]`)))
	text, err := inPage(b.ctx, chromedp.Text("body"))
	require.NoError(t, err)
	shot, err := inPage(b.ctx, chromedp.FullScreenshot(100))
	require.NoError(t, err)
	for _, shown := range []string{"Queues", "jobs", "webhooks"} {
		require.Contains(t, text, shown)
	}
	for _, action := range []string{"Pause", "Delete"} {
		require.NotContains(t, text, action, "the dashboard changes nothing")
	}
	require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), "asynqmon.png"), shot, 0o600))

	require.NoError(t, chromedp.Do(b.ctx, chromedp.Navigate("http://"+admin+"/asynqmon/queues/jobs"),
		chromedp.WaitVisible(`//*[contains(text(), "Pending")]`)))
	text, err = inPage(b.ctx, chromedp.Text("body"))
	require.NoError(t, err)
	require.Regexp(t, `(?s)Processed\s+5\b`, text, "the five jobs")
	b.mu.Lock()
	defer b.mu.Unlock()
	require.NotEmpty(t, b.hosts)
	for _, host := range b.hosts {
		require.Equal(t, admin, host, "asked by the page")
	}
}
