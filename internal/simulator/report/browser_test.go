package report

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
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

type view struct {
	Width           float64 // width of the content, in pixels
	Charts          []string
	Hidden, Outside []string
	Text            string
}

const inspectPage = `(async () => {
	await new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)));
	const width = document.documentElement.clientWidth;
	const seen = {Width: document.documentElement.scrollWidth, Charts: [], Hidden: [], Outside: [], Text: document.body.innerText};
	for (const figure of document.querySelectorAll("figure")) {
		const title = figure.querySelector("h3").textContent;
		seen.Charts.push(title);
		for (const canvas of figure.querySelectorAll("canvas")) {
			const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", {willReadFrequently: true}), colors = new Set();
			copy.drawImage(canvas, 0, 0);
			const pixels = new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
			for (const pixel of pixels) if (pixel >>> 24 > 200) colors.add(pixel);
			if (canvas.clientWidth < 200 || colors.size < 3) seen.Hidden.push(title + ": " + colors.size + " colors");
		}
	}
	for (const element of document.querySelectorAll("h1, section, dl > div, .card, figure, canvas, .lane, .u-series")) {
		const box = element.getBoundingClientRect();
		if (box.left < -0.5 || box.right > width + 0.5) seen.Outside.push(element.className + ": " + element.textContent.slice(0, 40));
	}
	return seen;
})()`

var charts = []string{
	"Injected faults", "Arrivals and completions", "Submit latency", "Finish latency", "Jobs under way", "Jobs ended", "Worker processes",
	"Webhook deliveries",
}

func TestPageInABrowser(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithTimeout(browser.Tab(t), 3*testkit.Patience)
	t.Cleanup(stop)

	var mu sync.Mutex
	var consoleErrors, fetched []string
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *log.EventEntryAdded:
			consoleErrors = append(consoleErrors, e.Entry.Text)
		case *runtime.EventConsoleAPICalled:
			consoleErrors = append(consoleErrors, "console: "+string(e.Type))
		case *runtime.EventExceptionThrown:
			consoleErrors = append(consoleErrors, e.ExceptionDetails.Text)
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
		for _, width := range []int64{390, 1200} {
			require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(width, 900), chromedp.Navigate(address), chromedp.WaitReady("main")))
			seen, err := chromedp.Run(ctx, chromedp.Evaluate[view](inspectPage, chromedp.EvalAwaitPromise))
			require.NoError(t, err, name)
			require.LessOrEqual(t, seen.Width, float64(width), "%s at %d: the page scrolls sideways", name, width)
			if name == "faults" {
				require.Equal(t, charts, seen.Charts)
				require.Empty(t, seen.Hidden, "at %d: charts without a size or a visible curve", width)
			}
			require.Empty(t, seen.Outside, "%s at %d: elements outside the window", name, width)
			require.Equal(t, -1, strings.IndexFunc(seen.Text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }),
				"%s: no invisible or bidirectional control characters", name)
		}
		if name == "faults" {
			_, err = chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
			})
			require.NoError(t, err)
			seen, err := chromedp.Run(ctx, chromedp.Evaluate[view](inspectPage, chromedp.EvalAwaitPromise))
			require.NoError(t, err)
			require.Empty(t, seen.Hidden, "dark mode")
		}
		mu.Lock()
		require.Empty(t, consoleErrors, name)
		require.Equal(t, []string{address, address}, fetched, "%s: only the page is fetched", name)
		fetched = nil
		mu.Unlock()
	}
}
