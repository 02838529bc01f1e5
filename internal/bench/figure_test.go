package main

import (
	"encoding/json"
	"errors"
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
		f    figure
		ok   bool
	}{
		{"above a lower bound", atLeast("rate", 7, 7.1, "x", ""), true},
		{"at it", atLeast("rate", 7, 7, "x", ""), true},
		{"below it", atLeast("rate", 7, 6.99, "x", ""), false},
		{"below an upper bound", atMost("time", 10, 9, "ms", ""), true},
		{"at it", atMost("time", 10, 10, "ms", ""), true},
		{"above it", atMost("time", 10, 10.1, "ms", ""), false},
		{"nothing lost", atMost("lost", 0, 0, "jobs", ""), true},
		{"one lost", atMost("lost", 0, 1, "jobs", ""), false},
	} {
		require.Equal(t, c.ok, c.f.OK, c.name)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	require.NoError(t, writeTable(&b, []figure{
		atLeast("rate", 7, 6.5432, "x naive", "6000/s to 917/s"), atMost("time", 10, 123.4, "ms", ""), atMost("lost", 0, 0, "jobs", "of 1000"),
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
	require.NoError(t, writeMarkdown(path, []string{"2030-01-01", "2 cores"}, []figure{atMost("time", 10, 5, "ms", "a|b")}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "2030-01-01; 2 cores\n\n| figure | target | measured | ratio | ok |  |\n|---|---|---|---|---|---|\n"+
		"| time | <= 10 ms | 5 | 0.5 | ok | a\\|b |\n", string(content))
	require.Equal(t, "figure", columns[0], "the columns stay as they are")
}

func TestJSON(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bench.json")
	require.NoError(t, writeJSON(path, []figure{atLeast("rate", 7, 8, "x naive", "")}))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.JSONEq(t, `[{"figure":"rate","target":7,"measured":8,"unit":"x naive","ok":true,"at_most":false}]`, string(content))

	require.NoError(t, writeJSON(path, nil))
	content, err = os.ReadFile(path)
	require.NoError(t, err)
	var list []figure
	require.NoError(t, json.Unmarshal(content, &list))
	require.NotNil(t, list, "a list, even if nothing could be measured")
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, text := range map[float64]string{0: "0", 0.4: "0.4", 0.03456: "0.0346", 7: "7", 99.96: "100", 123.4: "123", 12345.6: "12346"} {
		require.Equal(t, text, number(v))
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	good, bad := figure{OK: true}, figure{}
	require.Equal(t, 0, exitCode([]figure{good}, nil))
	require.Equal(t, 1, exitCode([]figure{good, bad}, nil))
	require.Equal(t, 2, exitCode([]figure{bad}, errors.New("not measured")), "what could not be measured counts more")
}
