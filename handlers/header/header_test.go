package header

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/handlers/decode"
)

func TestWeights(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]int{ // of application/json
		"": 1000, "*/*": 1000, ",": 1000, "application/json": 1000, "application/json;q=0.5": 500, "application/json; Q=0.5": 500,
		"application/json;q=0.001": 1, "application/json;q=0": 0, "application/json;q=0.000": 0, "application/json;q=1.000": 1000,
		"application/*;q=0.3, */*": 300, "*/*;q=0.2, application/*;q=0.3, application/json;q=0.1": 100, "text/html": 0,
		"application/json;q=": 1000, "application/json;q=x": 1000, "application/json;q=-1": 1000, "application/json;q=2": 1000,
		"application/json;q=NaN": 1000, "application/json;q=1e-1": 100, "application/json;v=1;q=0.4": 400, "application/json;q=0.4;v=1": 400,
		"application/json;;q=0.4": 400, "application/json;qq=0.4": 1000,
	} {
		require.Equal(t, want, quality(accept, "application/json"), accept)
	}
}

func TestPreferWait(t *testing.T) {
	t.Parallel()
	tests := map[string]int{ // seconds; -1: no wait
		"":                                     -1,
		"wait":                                 -1,
		"wait=":                                -1,
		`wait=""`:                              -1,
		"wait=0":                               0,
		"wait=1":                               1,
		"wait=5":                               5,
		"wait=007":                             7,
		"wait=30":                              30,
		"wait=31":                              30,
		"wait=3600":                            30,
		"wait=99999999999999999999999999999":   30,
		"Wait=5":                               5,
		"WAIT=5":                               5,
		" wait = 5 ":                           5,
		"wait\t=\t5":                           5,
		`wait="5"`:                             5,
		`wait="\5"`:                            5,
		"wait=5; x":                            5,
		"wait=5;x=y; z=\"a;b,c\"":              5,
		"wait=5;":                              5,
		"wait=5;;":                             5,
		"wait=5, wait=6":                       5,
		"wait=x, wait=6":                       -1,
		"wait, wait=6":                         -1,
		"respond-async, wait=5":                5,
		"respond-async,wait=5,x":               5,
		`x="wait=6", wait=5`:                   5,
		`x="a, wait=6", wait=5`:                5,
		`x="a\", wait=6", wait=5`:              5,
		"x;wait=6, wait=5":                     5,
		"x;wait=6":                             -1,
		"@@@, wait=5":                          5,
		"(), wait=5":                           5,
		", ,wait=5,,":                          5,
		"=5, wait=5":                           5,
		"wait=5 6, wait=7":                     7,
		"wait 5, wait=7":                       7,
		"wait=1.5":                             -1,
		"wait=-1":                              -1,
		"wait=+1":                              -1,
		"wait=1e1":                             -1,
		"wait=5s":                              -1,
		"wait=0x5":                             -1,
		"wait=\u0665":                          -1,
		"wait=\u0665, wait=5":                  5,
		`wait="5`:                              -1,
		`wait=5"`:                              -1,
		`"wait=5"`:                             -1,
		`"wait"=5`:                             -1,
		`wait="5"6`:                            -1,
		"wait='5'":                             -1,
		"wait:5":                               -1,
		"wait==5":                              -1,
		"wait=5=6":                             -1,
		"await=5":                              -1,
		"wait-=5":                              -1,
		`x="unterminated, wait=5`:              -1,
		"wait=5; x=\"y":                        -1,
		"wait=5; =y":                           -1,
		"wait=\x00":                            -1,
		"wait=\"5\x00\"":                       -1,
		strings.Repeat("x,", 5000) + "wait=5":  5,
		strings.Repeat(`"`, 9999) + ", wait=5": -1,
	}
	for header, want := range tests {
		limit, ok := ParsePrefer(header).Wait()
		require.Equal(t, want >= 0, ok, header)
		if ok {
			require.Equal(t, time.Duration(want)*time.Second, limit, header)
		}
	}
}

func FuzzRange(f *testing.F) {
	for _, seed := range []string{"bytes=0-1", "bytes=-1", "bytes=5-", "bytes=0-0,1-1", "bytes=9999999999999999999-", "bytes=", "", "x=1-2",
		"bytes=,1-2"} {
		f.Add(seed, 10)
	}
	f.Fuzz(func(t *testing.T, header string, size int) {
		if size < 0 {
			return
		}
		part, ok := ParseRange(header, size)
		if part == nil {
			return
		}
		require.True(t, ok)
		require.LessOrEqual(t, 0, part.First)
		require.LessOrEqual(t, part.First, part.Last)
		require.Less(t, part.Last, size)
		again, ok := ParseRange(fmt.Sprintf("bytes=%d-%d", part.First, part.Last), size)
		require.True(t, ok)
		require.Equal(t, part, again)
	})
}

func FuzzPrefer(f *testing.F) {
	for _, seed := range []string{"", "wait=5", `wait="5", x`, `a="b\"c";d=e, wait=6`, `"`, ",;=", "wait=5;x=\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		limit, ok := ParsePrefer(header).Wait()
		require.LessOrEqual(t, limit, MaxWait)
		require.GreaterOrEqual(t, limit, time.Duration(0))
		_, first := ParsePrefer("wait=7," + header).Wait()
		require.True(t, first)
		if ok {
			require.Contains(t, strings.ToLower(header), "wait")
		}
	})
}

func FuzzKeyHeader(f *testing.F) {
	for _, seed := range []string{"", "a", `"a"`, `"a\"b\\"`, `"`, `"\`, `a"`, "ä", " a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key, ok := Key(header)
		if !ok || !decode.ValidKey(key) {
			return
		}
		again, ok := Key(`"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`)
		require.True(t, ok)
		require.Equal(t, key, again)
	})
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func FuzzTraceParent(f *testing.F) {
	for _, seed := range []string{"", traceparent, "ff" + traceparent[2:], traceparent + "-x", "01" + traceparent[2:] + "-x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, parent string) {
		if span := Traceparent(parent); span.IsValid() {
			trace := span.TraceID().String()
			require.Regexp(t, `^[0-9a-f]{32}$`, trace)
			require.True(t, decode.ValidCorrelation(trace))
			require.Equal(t, parent[3:35], trace)
		}
	})
}
