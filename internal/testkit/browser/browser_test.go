package browser_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/internal/testkit/browser"
)

func TestMain(m *testing.M) {
	code := m.Run()
	browser.Stop()
	os.Exit(code)
}

// Tabs share a browser process and nothing else. When a tab crashes, the others continue. When the browser ends, the next tab
// restarts it.
func TestTabsAreIsolated(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "visited", Value: "yes"})
		_, _ = w.Write([]byte(r.Header.Get("Cookie")))
	}))
	t.Cleanup(page.Close)
	first, second := browser.Tab(t), browser.Tab(t)
	process := chromedp.FromContext(first).Browser.Process()
	require.Equal(t, process.Pid, chromedp.FromContext(second).Browser.Process().Pid)
	for range 2 {
		require.NoError(t, chromedp.Do(first, chromedp.Navigate(page.URL)))
	}
	require.NoError(t, chromedp.Do(second, chromedp.Navigate(page.URL)))
	for _, c := range []struct {
		tab  context.Context
		want string
	}{{first, "visited=yes"}, {second, ""}} {
		text, err := chromedp.Run(c.tab, chromedp.Evaluate[string](`document.body.innerText`))
		require.NoError(t, err)
		require.Equal(t, c.want, text)
	}

	require.Error(t, chromedp.Do(first, chromedp.Navigate("chrome://crash")))
	require.NoError(t, chromedp.Do(second, chromedp.Navigate(page.URL)), "another tab has crashed")

	require.NoError(t, process.Kill())
	testkit.Eventually(t, "it has ended", func() bool { return second.Err() != nil })
	require.NoError(t, chromedp.Do(browser.Tab(t), chromedp.Navigate(page.URL)))
}
