package main

import (
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestScreenShowsWhatATerminalWould(t *testing.T) {
	t.Parallel()
	for printed, lines := range map[string][][]span{
		"a\r\nb\r\n":                  {{{0, "a", ""}}, {{0, "b", ""}}, nil},
		"first\r\x1b[Kb":              {{{0, "b", ""}}},
		"\x1b[?25l×  a \x1b[?25h":     {{{0, "×  a", ""}}},
		"\x1b[32m\x1b[Ka\x1b[m\x1b[K": {{{0, "a", "32"}}},
		"a\x1b[3":                     {{{0, "a", ""}}},
		"a\xc3":                       {{{0, "a", ""}}},
	} {
		require.Equal(t, lines, shown([]byte(printed)), "%q", printed)
	}
	last := []byte("QUEUED -> \x1b[36mRUNNING\x1b[0m  attempt 1  \r\n\r\n×  \x1b[1mJOB\x1b[0m")
	require.Equal(t, [][]span{
		{{0, "QUEUED ->", ""}, {10, "RUNNING", "36"}, {19, "attempt 1", ""}}, nil, {{0, "×", ""}, {3, "JOB", "1"}},
	}, shown(last))
}

// A recorder gives each line its time, and cuts pauses.
func TestRecorderKeepsTime(t *testing.T) {
	t.Parallel()
	r := newRecorder("", nil)
	at := time.Now()
	print := func(pane int, after time.Duration, text string) {
		at = at.Add(after)
		r.print(pane, []byte(text), at)
	}
	print(top, 0, "x")
	print(top, time.Millisecond, "\r\x1b[Ka")
	print(top, time.Hour, "\r\x1b[Kb\r\nc")
	print(top, time.Second, "\r\x1b[K")
	print(low, 0, "d")
	first, second := (longest + time.Millisecond).Truncate(frame), (longest + time.Second + time.Millisecond).Truncate(frame)
	require.Equal(t, []version{
		{top, 0, 0, first, []span{{0, "a", ""}}},
		{top, 0, first, 0, []span{{0, "b", ""}}},
		{top, 1, first, second, []span{{0, "c", ""}}},
		{low, 0, second, 0, []span{{0, "d", ""}}},
	}, r.film.versions)
}

func aFilm() film {
	f := film{length: 10 * time.Second, versions: []version{
		{top, 0, 0, time.Second, []span{{0, "$ a <b> & c", ""}}},
		{top, 0, time.Second, 0, []span{{0, "RUNNING", "36"}, {8, "now", ""}}},
	}}
	for row := 1; row < 25; row++ {
		f.versions = append(f.versions, version{top, row, 2 * time.Second, 0, []span{{0, "line", ""}}})
	}
	return f
}

func TestSVG(t *testing.T) {
	t.Parallel()
	drawn, err := svg(aFilm(), `what "happens" & why`, "a note")
	require.NoError(t, err)
	decoder := xml.NewDecoder(strings.NewReader(drawn))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, drawn, `aria-label="what &#34;happens&#34; &amp; why"`)
	require.NotContains(t, drawn, "%!", "what Fprintf writes of wrong arguments")
	require.NotRegexp(t, `<script|href|url\([^#]|@import`, drawn, "nothing runs, nothing is loaded")

	// The first line is there for a tenth of the time, the second one from then on and without motion.
	require.Contains(t, drawn, `<g class="l k0"><text x="0.0" y="13" textLength="90.2">$ a &lt;b&gt; &amp; c</text></g>`)
	require.Contains(t, drawn, "@keyframes k0 { 0% { visibility: hidden } 0.00% { visibility: visible } 10.00% { visibility: hidden } }")
	require.Contains(t, drawn, `<g class="l k1 f"><text class="c" x="0.0" y="13" textLength="57.4">RUNNING</text>`)
	require.Contains(t, drawn, "@keyframes k1 { 0% { visibility: hidden } 10.00% { visibility: visible } }")
	require.Len(t, regexp.MustCompile(`<g class="l k2 f">`).FindAllString(drawn, -1), 24, "lines of one time share an animation")

	// 25 lines: 6 are above the pane in the end, and more where it has fewer rows.
	require.Regexp(t, `@keyframes w0 .* 20\.00% { transform: translateY\(-108px\) } }`, drawn)
	require.Contains(t, drawn, ".s0 { animation-name: w0; transform: translateY(-108px) }")
	require.Contains(t, drawn, ".s0 { animation-name: n0; transform: translateY(-288px) }")
	require.Contains(t, drawn, "prefers-reduced-motion")
}
