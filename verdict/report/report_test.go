package report_test

import (
	"bytes"
	"encoding/xml"
	"html"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/report"
)

const hostile = "<script>alert(1)</script>]]>&\x1b[31m\x00\""

func wrong() *verdict.Verdict {
	began := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	ended := began.Add(time.Minute)
	return &verdict.Verdict{
		Session: verdict.Session{Profile: "flaky-network", Seed: 7, Recorded: 12, CreatedAt: fault.Time(began), EndedAt: fault.TimeOf(&ended)},
		Verdict: "failed", Why: "1 rule passed.", Counts: map[verdict.Status]int{"warn": 1, "fail": 1, "not_tested": 1},
		Faults: []fault.Count{{Fault: "429", Of: "submissions", Requests: 9, Times: 2}, {Fault: "stream cut", Of: "event streams"}},
		Results: []verdict.Result{
			{Rule: "backoff", Title: "The client waits.", Level: "should", Status: "warn", Times: 3, See: "https://example.com/a"},
			{Rule: "same-body", Title: "The same body.", Level: "must", Quote: "It must.", Status: "fail", Times: 3, Failures: 2,
				See: "https://example.com/b",
				Evidence: []verdict.Evidence{{
					Found: "Another.", Expected: "The same.", Times: 2,
					Before: &verdict.Moment{At: fault.Time(began), Request: "POST /first", Answer: "202"},
					Request: &verdict.Moment{
						At: fault.Time(began), Request: "POST " + hostile, Headers: []string{hostile}, Answer: hostile, Fault: hostile,
					},
				}}},
			{Rule: "time-outs", Title: "It gives up.", Status: "not_tested", Reason: "no delay", See: "https://example.com/c", Exercise: "A delay."},
		},
	}
}

// JUnit and HTML reports are valid, even if the client sent hostile text.
func TestForms(t *testing.T) {
	t.Parallel()
	var junit, html bytes.Buffer
	require.NoError(t, report.JUnit(&junit, wrong()))
	require.NoError(t, report.HTML(&html, wrong()))

	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testcase"`
	}
	require.NoError(t, xml.Unmarshal(junit.Bytes(), &suite), junit.String())
	require.Equal(t, []int{5, 1, 3}, []int{suite.Tests, suite.Failures, suite.Skipped})
	require.NotContains(t, junit.String(), "\x1b")
	require.NotNil(t, suite.Cases[1].Failure)
	require.NotNil(t, suite.Cases[2].Skipped)

	for _, text := range []string{junit.String(), html.String()} {
		require.Regexp(t, `(?s)POST /first.*POST &lt;script.*[Ff]ound \(2 times\)(: |</b>)Another`, text)
	}
	require.NotContains(t, html.String(), "<script")
	require.NotContains(t, html.String(), "\x1b")
	for _, part := range []string{
		"FAILED: 1 error, 1 warning</h1>\n<p>1 rule passed.</p>",
		`<section class="card rule bad" id="same-body"`, `<section class="card rule open" id="backoff"`, "<q>It must.</q>", "2 of 9",
		"never triggered", "<td>A delay.</td>", "broken 2 of 3 times",
	} {
		require.Contains(t, html.String(), part)
	}
	require.NotContains(t, html.String(), "<figure", "a decoded verdict has no journal")
}

// recorded returns a session of n requests, one per 100 ms. Each tenth has a fault. The last `wrong` requests have a key in their URL.
func recorded(n, wrong int) *verdict.Record {
	r := &verdict.Record{
		Now: time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC), Log: &verdict.Log{},
		Session: verdict.Session{ID: "s1", Rules: []string{"no-key-in-url"}, Recorded: n},
	}
	for i := range n {
		x := verdict.Exchange{
			Start: r.Now, End: r.Now, Method: "GET", Path: "/v1/jobs/j" + strconv.Itoa(i+1), Role: verdict.Read, Status: 200, KeyInURL: i >= n-wrong,
		}
		if i%10 == 0 {
			x.Fault = &fault.Effect{Status: 503}
		}
		r.Log.Add(&x)
		r.Now = r.Now.Add(100 * time.Millisecond)
	}
	return r
}

// The page of many requests stays small. The timeline shows all requests; the tables show only the first ones and requests that broke
// rules.
func TestPageOfManyRequests(t *testing.T) {
	t.Parallel()
	page := func(n, wrong int) string {
		var html bytes.Buffer
		v := verdict.Of(recorded(n, wrong))
		require.NoError(t, report.HTML(&html, &v))
		return html.String()
	}
	rows := func(html string) int { return strings.Count(html, "<tr><td class=\"num\">") }
	few := page(5, 1)
	require.Contains(t, few, "<desc id=\"about0\">5 requests, 1 with faults, 1 that broke rules; at most 1 in 2 ms.</desc>")
	require.Equal(t, 5+1, rows(few))
	require.Contains(t, few, "All 5 requests")

	many := page(50_000, 700)
	require.Contains(t, many, "50,000 requests, 5,000 with faults, 700 that broke rules; at most 313 in 31.2 s.")
	require.Equal(t, 500+500, rows(many))
	require.Contains(t, many, "/v1/jobs/j49301<", "a request that broke a rule, after the first 500")
	require.Contains(t, many, "And 200 more.")
	require.Contains(t, many, "The first 500 of 50,000 requests")
	require.Contains(t, many, `<a href="journal">`)
	require.Less(t, len(many), 400_000)
}

// Consecutive equal requests share a row, which shows their number. A different response, fault or broken rule begins a new row. Requests
// about different jobs share a row only if they have no fault and broke no rule.
func TestPageFoldsEqualRequests(t *testing.T) {
	t.Parallel()
	r := &verdict.Record{Now: time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC), Log: &verdict.Log{},
		Session: verdict.Session{ID: "s1", Rules: []string{"no-key-in-url"}}}
	ask := func(times int, path, job string, change func(*verdict.Exchange)) {
		for range times {
			x := verdict.Exchange{Start: r.Now, End: r.Now, Method: "GET", Path: path, Job: job, Role: verdict.Read, Status: 200}
			if change != nil {
				change(&x)
			}
			r.Log.Add(&x)
			r.Now = r.Now.Add(time.Second)
		}
	}
	ask(60, "/v1/jobs/1", "1", nil)
	ask(2, "/v1/jobs/1", "1", func(x *verdict.Exchange) { x.Status = 304 })
	ask(2, "/v1/jobs/1", "1", func(x *verdict.Exchange) { x.Fault = &fault.Effect{Status: 503} })
	ask(2, "/v1/jobs/1", "1", func(x *verdict.Exchange) { x.KeyInURL = true })
	ask(1, "/v1/jobs/2", "2", func(x *verdict.Exchange) { x.KeyInURL = true })
	ask(1, "/v1/jobs/1/report", "/jobs/1", nil)
	ask(1, "/v1/jobs/2/report", "/jobs/2", func(x *verdict.Exchange) { x.Query = "a=1" })
	ask(1, "/v1/jobs/3/report", "/jobs/3", func(x *verdict.Exchange) { x.Query = "a=1" })
	ask(1, "/v1/jobs", "", nil)
	r.Session.Recorded = 71
	v := verdict.Of(r)
	var page bytes.Buffer
	require.NoError(t, report.HTML(&page, &v))
	_, all, found := strings.Cut(page.String(), "All 71 requests")
	require.True(t, found)
	var rows []string
	tags := regexp.MustCompile("<[^>]*>")
	for _, line := range strings.Split(all, "\n") {
		if strings.Contains(line, `<td class="num">`) {
			rows = append(rows, strings.Join(strings.Fields(html.UnescapeString(tags.ReplaceAllString(line, " "))), " "))
		}
	}
	require.Equal(t, []string{
		"1–60 12:00:00.000 to 12:00:59.000 60 × GET /v1/jobs/1 200",
		"61–62 12:01:00.000 to 12:01:01.000 2 × GET /v1/jobs/1 304",
		`63–64 12:01:02.000 to 12:01:03.000 2 × GET /v1/jobs/1 200 fault 503 {"status":503}`,
		"65–66 12:01:04.000 to 12:01:05.000 2 × GET /v1/jobs/1 200 no-key-in-url",
		"67 12:01:06.000 GET /v1/jobs/2 200 no-key-in-url",
		"68 12:01:07.000 GET /v1/jobs/1/report 200",
		"69–70 12:01:08.000 to 12:01:09.000 2 × GET /v1/jobs/{job}/report?a=1 200",
		"71 12:01:10.000 GET /v1/jobs 200",
	}, rows)
}
