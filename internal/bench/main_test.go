package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func TestComparisonInTurns(t *testing.T) {
	t.Parallel()
	order := ""
	measured := func(name string, rates ...float64) side {
		return side{name: name, measure: func(got sample) {
			order += name + " "
			got["half"] = rates[0] / 2
			if name != "none" {
				got["rate"] = rates[0]
			}
			rates = rates[1:]
		}}
	}
	l := &lab{options: options{rounds: 3}}
	l.compare([]side{measured("ours", 10, 40, 3000), measured("none", 2, 2, 2), measured("theirs", 20, 40, 1000)}, "rate", "nothing")
	require.Equal(t, "ours none theirs theirs none ours ours none theirs ", order)
	l.rounds = 1
	l.compare([]side{measured("ours", 40)}, "half")
	var b strings.Builder
	require.NoError(t, writeTable(&b, l.lines))
	require.Equal(t, `| figure | ForgeRun | compared with | ratio        |
| ---    | ---      | ---           | ---          |
| rate   | 40       | 40 (theirs)   | 1 (0.5 to 3) |
| half   | 20       |               |              |
`, b.String())
	require.ErrorContains(t, l.attempt(func() {
		l.compare([]side{{name: "b", measure: func(sample) { check(errors.New("no")) }}})
	}), "b: no")
	for v, text := range map[float64]string{0.03456: "0.0346", 7: "7", 99.96: "100", 123.4: "123", 12345.6: "12346"} {
		require.Equal(t, text, number(v))
	}
	require.Equal(t, 2.5, quantile([]float64{4, 1, 3, 2}, 0.5))
	require.Equal(t, 4.0, quantile([]float64{4, 1, 3, 2}, 1))
}
