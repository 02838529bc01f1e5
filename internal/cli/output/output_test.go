package output_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

type thing struct {
	ID     string    `json:"id"`
	State  string    `json:"state"`
	At     time.Time `json:"created_at"`
	Secret string    `json:"secret"`
	Size   int64     `json:"size"`
}

var view = output.NewView("ID:id, STATE:state:state, AGE:created_at:age, SIZE:size:wide")

func printed(t *testing.T, form string, style term.Style, items ...any) string {
	t.Helper()
	var out bytes.Buffer
	p := output.Printer{Form: form, Quiet: form == "quiet", Out: &out, Style: style, Now: func() time.Time { return now }}
	require.NoError(t, p.List(view, items))
	return out.String()
}

func TestForms(t *testing.T) {
	t.Parallel()
	items := []any{thing{ID: "a", State: "FAILED", At: now.Add(-3 * time.Minute), Size: 1 << 60}, thing{ID: "long-one", State: "\x1b[2Jx"}}
	for form, want := range map[string]string{
		"table": "ID        STATE       AGE\na         FAILED      3m00s\nlong-one  \\u001b[2Jx  -\n",
		"wide":  "ID        STATE       AGE    SIZE\na         FAILED      3m00s  1152921504606846976\nlong-one  \\u001b[2Jx  -      0\n",
		"quiet": "a\nlong-one\n",
	} {
		require.Equal(t, want, printed(t, form, term.Style{}, items...), form)
	}
	require.JSONEq(t, `[{"created_at":"2026-01-31T11:57:00Z","id":"a","size":1152921504606846976,"state":"FAILED"}]`,
		printed(t, "json", term.Style{}, items[0]))
	require.Equal(t, "[]\n", printed(t, "json", term.Style{}))
	require.Regexp(t, `a +- +0ms\nb +- +24h00m`, printed(t, "table", term.Style{}, thing{ID: "a", At: now.Add(24 * time.Hour)},
		thing{ID: "b", At: now}), "a test bed's clock may be ahead")
	long := thing{ID: strings.Repeat("i", 61)}
	require.Contains(t, printed(t, "table", term.Style{}, long), long.ID)
	require.Contains(t, printed(t, "wide", term.Style{Terminal: true}, long), long.ID)
	require.Contains(t, printed(t, "table", term.Style{Terminal: true}, long), "\n"+long.ID[:57]+"...  -")
	require.Contains(t, printed(t, "table", term.Style{Colors: true}, items[0]), "\x1b[31mFAILED\x1b[0m")
}
