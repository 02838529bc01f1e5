package figures

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFiguresAreJudged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		f    Figure
		ok   bool
	}{
		{"above a lower bound", AtLeast("rate", 7, 7.1, "x", ""), true},
		{"at it", AtLeast("rate", 7, 7, "x", ""), true},
		{"below it", AtLeast("rate", 7, 6.99, "x", ""), false},
		{"below an upper bound", AtMost("time", 10, 9, "ms", ""), true},
		{"at it", AtMost("time", 10, 10, "ms", ""), true},
		{"above it", AtMost("time", 10, 10.1, "ms", ""), false},
		{"nothing lost", AtMost("lost", 0, 0, "jobs", ""), true},
		{"one lost", AtMost("lost", 0, 1, "jobs", ""), false},
	} {
		require.Equal(t, c.ok, c.f.OK, c.name)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, WriteTable(&b, []Figure{
		AtLeast("rate", 7, 6.5432, "x naive", "6000/s to 917/s"), AtMost("time", 10, 123.4, "ms", ""), AtMost("lost", 0, 0, "jobs", "of 1000"),
	}))
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	require.Len(t, lines, 4)
	for i, words := range []string{
		"figure target measured ratio ok",
		"rate >= 7 x naive 6.54 0.935 FALLS SHORT 6000/s to 917/s",
		"time <= 10 ms 123 12.3 FALLS SHORT",
		"lost <= 0 jobs 0 - ok of 1000",
	} {
		require.Equal(t, words, strings.Join(strings.Fields(lines[i]), " "))
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "table.md")
	require.NoError(t, WriteMarkdown(path, []string{"2030-01-01", "2 cores"}, []Figure{AtMost("time", 10, 5, "ms", "a|b")}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "2030-01-01; 2 cores\n\n| figure | target | measured | ratio | ok |  |\n|---|---|---|---|---|---|\n"+
		"| time | <= 10 ms | 5 | 0.5 | ok | a\\|b |\n", string(content))
	require.Equal(t, "figure", columns[0], "the columns stay as they are")
}

func TestJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bench.json")
	require.NoError(t, WriteJSON(path, []Figure{AtLeast("rate", 7, 8, "x naive", "")}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `[{"figure":"rate","target":7,"measured":8,"unit":"x naive","ok":true,"at_most":false}]`, string(content))

	require.NoError(t, WriteJSON(path, nil))
	content, err = os.ReadFile(path)
	require.NoError(t, err)
	var list []Figure
	require.NoError(t, json.Unmarshal(content, &list))
	require.NotNil(t, list, "a list, even if nothing could be measured")
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, text := range map[float64]string{0: "0", 0.4: "0.4", 0.03456: "0.0346", 7: "7", 99.96: "100", 123.4: "123", 12345.6: "12346"} {
		require.Equal(t, text, number(v))
	}
}

func TestMediansAndRatios(t *testing.T) {
	t.Parallel()
	require.Zero(t, Median(nil))
	require.Equal(t, 3.0, Median([]float64{9, 1, 3}))
	require.Equal(t, 2.5, Median([]float64{4, 1, 3, 2}))
	require.Equal(t, []float64{2, 3}, ratios([]float64{4, 9}, []float64{2, 3}))
}
