package report

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// findBrowser gives a Chromium. People who test without one skip such tests.
func findBrowser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	require.Empty(t, os.Getenv("CI"), "no Chromium: scripts/setup.sh ci installs it")
	t.Skip("no Chromium on PATH: what is seen in a browser is not tested")
	return ""
}

// view is what lookAround finds.
type view struct {
	Width           float64 // that one could scroll
	Plots           int
	Hidden, Outside []string
}

const lookAround = `(() => {
	const width = document.documentElement.clientWidth;
	const seen = {Width: document.documentElement.scrollWidth, Plots: 0, Hidden: [], Outside: []};
	for (const figure of document.querySelectorAll("figure")) {
		seen.Plots++;
		const box = figure.querySelector("svg").getBoundingClientRect();
		if (box.width < 200 || box.height < 15) seen.Hidden.push(figure.id + ": " + box.width + " x " + box.height);
		for (const curve of figure.querySelectorAll("path.line, path.area")) {
			const style = getComputedStyle(curve), ink = curve.matches(".line") ? style.stroke : style.fill;
			if (ink === "none" || ink === getComputedStyle(figure).backgroundColor) seen.Hidden.push(figure.id + ": " + curve.getAttribute("class"));
		}
	}
	for (const element of document.querySelectorAll("header, section, dl > div, .card, figure, .frame span, .legend li")) {
		const box = element.getBoundingClientRect();
		if (box.left < -0.5 || box.right > width + 0.5) seen.Outside.push(element.className + ": " + element.textContent.slice(0, 40));
	}
	return seen;
})()`

const hover = `(() => {
	const canvas = document.querySelector("#traffic .canvas"), box = canvas.getBoundingClientRect();
	canvas.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + 0.51 * box.width, clientY: box.top + 5, bubbles: true}));
	return document.querySelector("#traffic output").textContent;
})()`

// The page as people see it: nothing is fetched, nothing complains, every plot
// has its place, and nothing sticks out on a phone or a desk.
func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(findBrowser(t)), chromedp.NoSandbox,
		chromedp.Flag("disable-component-update", true))
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, closeTab := chromedp.NewContext(allocated)
	t.Cleanup(closeTab)
	ctx, stop := context.WithTimeout(ctx, 3*testkit.Patience)
	t.Cleanup(stop)

	var mu sync.Mutex
	var complaints, fetched []string
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			complaints = append(complaints, e.Entry.Text)
		case *runtime.EventConsoleAPICalled:
			complaints = append(complaints, "console: "+string(e.Type))
		case *runtime.EventExceptionThrown:
			complaints = append(complaints, e.ExceptionDetails.Text)
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, "data:") {
				fetched = append(fetched, e.Request.URL)
			}
		}
	}))
	_, err := chromedp.Call(ctx, log.Enable, cdp.Empty{})
	require.NoError(t, err)
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)

	for _, name := range []string{"nothing", "faults", "violations", "hostile"} {
		run := runs()[name]
		file := filepath.Join(t.TempDir(), "report.html")
		require.NoError(t, os.WriteFile(file, []byte(written(t, WriteHTML, run)), 0o600))
		address := (&url.URL{Scheme: "file", Path: file}).String()
		for _, width := range []int64{400, 1200} {
			require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(address), chromedp.WaitReady("main")))
			seen, err := chromedp.Run(ctx, chromedp.Evaluate[view](lookAround))
			require.NoError(t, err, name)
			require.LessOrEqual(t, seen.Width, float64(width), "%s at %d: scrolls sideways", name, width)
			require.GreaterOrEqual(t, seen.Plots, 7, name)
			require.Empty(t, seen.Hidden, "%s at %d: plots without a size, or without a curve that is seen", name, width)
			require.Empty(t, seen.Outside, "%s at %d: sticks out", name, width)
		}
		if name == "faults" {
			readout, err := chromedp.Run(ctx, chromedp.Evaluate[string](hover))
			require.NoError(t, err)
			require.Regexp(t, `^5:\d\d   arrivals \S+   completions \S+`, readout, "the values under the pointer")
			for _, scheme := range []string{"light", "dark"} {
				_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
				})
				require.NoError(t, err)
				shot, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(t.ArtifactDir(), scheme+".png"), shot, 0o600))
			}
		}
		mu.Lock()
		require.Empty(t, complaints, name)
		require.Equal(t, []string{address, address}, fetched, "%s: the page and nothing else", name)
		fetched = nil
		mu.Unlock()
	}
}
