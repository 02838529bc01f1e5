// Package browser runs a headless Chromium that the tests of one test binary share.
package browser

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var shared struct {
	mu   sync.Mutex
	ctx  context.Context // context of the browser; nil before the first call of Tab
	stop context.CancelFunc
}

// Tab opens a tab with its own profile and window, and returns its chromedp context. The tab closes when the test ends. If no Chromium is
// installed, the test is skipped; in CI it fails.
func Tab(t testing.TB) context.Context {
	t.Helper()
	path := find()
	if path == "" {
		require.Empty(t, os.Getenv("CI"), "no Chromium: scripts/setup.sh ci installs it")
		t.Skip("no Chromium on PATH: what is seen in a browser is not tested")
	}
	browser, err := running(path)
	require.NoError(t, err)
	tab, closeTab := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(closeTab)
	require.NoError(t, chromedp.Do(tab), "a tab is opened")
	return tab
}

// find prefers the headless shell, which draws no browser UI. This saves a third of the tests' time.
func find() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func running(path string) (context.Context, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.ctx != nil && shared.ctx.Err() == nil {
		return shared.ctx, nil
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox,
		chromedp.WindowSize(1300, 900), chromedp.Flag("disable-component-update", true))
	allocated, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, stop := chromedp.NewContext(allocated)
	if err := chromedp.Do(ctx); err != nil { // starts the browser
		release()
		return nil, err
	}
	shared.ctx, shared.stop = ctx, func() { stop(); release() }
	return ctx, nil
}

// Stop ends the browser, if it runs. A package's TestMain calls it at the end.
func Stop() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.stop != nil {
		shared.stop()
	}
}
