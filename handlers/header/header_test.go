package header

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWeights(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]int{ // weights of application/json
		"": 1000, "*/*": 1000, ",": 1000, "application/json": 1000, "application/json;q=0.5": 500, "application/json; Q=0.5": 500,
		"application/json;q=0.001": 1, "application/json;q=0": 0, "application/json;q=0.000": 0, "application/json;q=1.000": 1000,
		"application/*;q=0.3, */*": 300, "*/*;q=0.2, application/*;q=0.3, application/json;q=0.1": 100, "text/html": 0,
		"application/json;q=": 1000, "application/json;q=x": 1000, "application/json;q=-1": 1000, "application/json;q=2": 1000,
		"application/json;q=NaN": 1000, "application/json;q=1e-1": 100, "application/json;v=1;q=0.4": 400, "application/json;q=0.4;v=1": 400,
		"application/json;;q=0.4": 400, "application/json;qq=0.4": 1000, "APPLICATION/JSON": 1000, " , application/json": 1000,
		"application/*;q=0, application/json": 1000, "application/*;q=0, */*": 0, "text/html,*/*;q=0.8": 800, "text/*": 0, "json": 0,
		"application/jsonx": 0, "application/json;q=0, */*;q=0.1": 0, "*/*, application/*; q=0.0": 0,
	} {
		require.Equal(t, want, quality(accept, "application/json"), accept)
	}
}

// Promise: draft F.5
func TestLanguage(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"": "en", "de": "de", "fr-CA": "fr", "en-GB,de;q=0.9": "en", "zh, ja;q=0.9": "en", "zh;q=0.9, de;q=0.1": "de",
		"de;q=0.5, fr;q=0.8": "fr", "DE-at": "de", "*": "en", ";;;": "en", "xx-": "en", strings.Repeat("de,", 500): "en", "\x01": "en",
	} {
		require.Equal(t, want, Language(accept), accept)
	}
}

func TestPreferWait(t *testing.T) {
	t.Parallel()
	for want, headers := range map[int][]string{ // seconds; -1: no wait
		0: {"wait=0"}, 1: {"wait=1"}, 30: {"wait=30", "wait=31", "wait=99999999999999999999999999999"},
		5: {"wait=5", "wait=005", "WAIT=5", " wait = 5 ", "wait\t=\t5", `wait="5"`, `wait="\5"`, "wait=5; x", "wait=5;x=y; z=\"a;b,c\"",
			"wait=5;;",
			"wait=5, wait=6", "respond-async,wait=5,x", `x="wait=6", wait=5`, `x="a, wait=6", wait=5`, `x="a\", wait=6", wait=5`,
			"x;wait=6, wait=5", "@@@, wait=5", "(), wait=5", ", ,wait=5,,", "=5, wait=5", "wait=5 6, wait=5", "wait 6, wait=5",
			"wait=\u0665, wait=5", strings.Repeat("x,", 5000) + "wait=5"},
		-1: {"", "wait", "wait=", `wait=""`, "wait=x, wait=6", "wait, wait=6", "x;wait=6", "wait=1.5", "wait=-1", "wait=+1", "wait=1e1",
			"wait=5s",
			"wait=0x5", "wait=\u0665", `wait="5`, `wait=5"`, `"wait=5"`, `"wait"=5`, `wait="5"6`, "wait='5'", "wait:5", "wait==5", "wait=5=6",
			"await=5", "wait-=5", `x="unterminated, wait=5`, "wait=5; x=\"y", "wait=5; =y", "wait=\x00", "wait=\"5\x00\"",
			strings.Repeat(`"`, 9999) + ", wait=5"},
	} {
		for _, header := range headers {
			limit, ok := ParsePrefer(header).Wait()
			require.Equal(t, want >= 0, ok, header)
			require.Equal(t, time.Duration(max(want, 0))*time.Second, limit, header)
		}
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	const endless = "99999999999999999999999998"
	for want, headers := range map[Span][]string{ // for a body of 10 bytes
		{0, 0}: {"bytes=0-0"}, {0, 9}: {"bytes=-99", "bytes=-" + endless, "bytes=0-"},
		{7, 9}: {"bytes=7-", "bytes=7-99", "bytes=7-" + endless, "bytes=-3"},
		{2, 4}: {"bytes=2-4", "Bytes=2-4", "bytes= 2-4 ", "bytes=,2-4,,", "bytes=002-0004"},
	} {
		for _, header := range headers {
			part, ok := ParseRange(header, 10)
			require.True(t, ok, header)
			require.Equal(t, &want, part, header)
		}
	}
	for _, outside := range []string{"bytes=10-", "bytes=10-12", "bytes=" + endless + "-", "bytes=" + endless + "-" + endless,
		"bytes=-0", "bytes=-00"} {
		_, ok := ParseRange(outside, 10)
		require.False(t, ok, outside)
	}
	for _, ignored := range []string{"bytes=0-1,3-4", "bytes=0-1,x", "bytes=4-2", "bytes=" + endless + "-9", "bytes=", "bytes=-", "bytes=--1",
		"bytes=1", "bytes=a-b", "bytes=+1-2", "bytes=1 -2", "bytes=1-2-3", "bytes=0x1-2",
		"bytes=1.0-2", "bytes =1-2", "bytes 1-2", "bytes:1-2", "items=1-2",
		"1-2", "", "bytes=\u0661-2", "bytes=" + strings.Repeat("0-0,", 2000)} {
		part, ok := ParseRange(ignored, 10)
		require.True(t, ok, ignored)
		require.Nil(t, part, ignored)
	}
}

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestTraceparent(t *testing.T) {
	t.Parallel()
	for _, good := range []string{traceparent, "01" + traceparent[2:] + "-more", traceparent[:53] + "fd"} {
		require.Equal(t, traceparent[3:35], Traceparent(good).TraceID().String(), good)
	}
	for _, bad := range []string{
		"", strings.ToUpper(traceparent), "ff" + traceparent[2:], traceparent + "-more", traceparent[:54], traceparent + "," + traceparent,
		"00-" + strings.Repeat("0", 32) + traceparent[35:], traceparent[:36] + strings.Repeat("0", 16) + "-01",
		strings.Replace(traceparent, "4bf9", "4bfg", 1), strings.Replace(traceparent, "4bf9", "4b\u00e9", 1),
		strings.ReplaceAll(traceparent, "-", "0"), "01" + traceparent[2:] + "-" + strings.Repeat("x", 9000),
	} {
		require.False(t, Traceparent(bad).IsValid(), "%.100s", bad)
	}
}

func TestEntityTags(t *testing.T) {
	t.Parallel()
	const strong, weak = `"1"`, `W/"1"`
	for list, want := range map[string][2]bool{ // results of MatchesStrongly and MatchesETag
		strong: {true, true}, weak: {false, true}, "*": {true, true}, ` "2" , "1"`: {true, true}, `"2", W/"1"`: {false, true},
		"1": {}, `"2"`: {}, `"1" "2"`: {}, `"a", *, "b"`: {}, ",": {}, "": {},
	} {
		require.Equal(t, want, [2]bool{MatchesStrongly(list, strong), MatchesETag(list, weak)}, list)
		require.Equal(t, list == "*", MatchesStrongly(list, weak) || MatchesStrongly(list, "") || MatchesETag(list, ""), list)
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a\uFFFDb\uFFFD", Clip("a\x00b\xff"))
	require.Equal(t, strings.Repeat("\u00e9", 250)+"...", Clip(strings.Repeat("\u00e9", 251)))
}
