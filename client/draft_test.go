package client_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// Each test is named after a section of draft-ratnawat-httpapi-async-problem-details.

func parse(t *testing.T, text string) *client.Outcome {
	t.Helper()
	o := must(client.ParseOutcome(problemType, []byte(text)))(t)
	return o
}

// Promise: clients 3.1, F.1, F.2
func TestDraft_3_1_NoMemberIsAssumed(t *testing.T) {
	t.Parallel()
	all := map[string]any{
		"type": "https://x/p", "title": "T", "status": 500, "detail": "D", "instance": "/i", "jobId": "x/1", "jobStatus": "FAILED",
		"submittedAt": "2030-01-31T12:00:00Z", "completedAt": "2030-01-31T12:00:01Z", "correlationId": "c", "retryable": true,
		"retryAfter": 30, "processingStage": "rendering", "attempt": 2,
	}
	for name := range all {
		less := map[string]any{}
		for n, v := range all {
			if n != name {
				less[n] = v
			}
		}
		body := must(json.Marshal(less))(t)
		o := parse(t, string(body))
		require.Equal(t, name != "jobStatus", o.Terminal(), name)
		require.Equal(t, name != "retryable", o.Retryable(), name)
	}
	bare := parse(t, `{"type":"https://x/p","title":"T","status":404,"detail":"D"}`)
	require.Equal(t, "D", bare.Detail)
	require.False(t, bare.Terminal())
	require.Empty(t, parse(t, `{}`).JobID)
}

// Promise: clients 3.1, F.1, F.2
func TestDraft_3_1_MembersOfTheWrongTypeCountAsAbsent(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"jobId":7,"jobStatus":["FAILED"],"submittedAt":"yesterday","retryable":"true","retryAfter":"5","results":3,
		"detail":"kept"}`)
	require.Equal(t, "kept", o.Detail)
	require.Empty(t, o.JobID)
	require.False(t, o.Retryable())
	require.Nil(t, o.RetryAfter)
	for _, value := range []string{"-1", "1.5", "null", "true", `"1"`} {
		require.Nil(t, parse(t, `{"retryAfter":`+value+`}`).RetryAfter, value)
	}
}

// Promise: clients 3.3, 4.3, F.3
func TestDraft_3_3_and_4_3_Statuses(t *testing.T) {
	t.Parallel()
	for status, terminal := range map[string]bool{
		"ACCEPTED": false, "PROCESSING": false, "COMPLETED": true, "FAILED": true, "CANCELLED": true, "TIMED_OUT": true,
		"COMPLETED_WITH_ERRORS": true, "failed": false, "Failed": false, "PAUSED": false, "CANCELED": false, "": false,
	} {
		require.Equal(t, terminal, parse(t, `{"jobStatus":"`+status+`"}`).Terminal(), status)
	}
	o := parse(t, `{"JOBSTATUS":"FAILED","jobstatus":"FAILED","Retryable":true}`)
	require.Empty(t, o.JobStatus, "member names are case-sensitive")
	require.False(t, o.Retryable())
	for _, state := range []string{"PAUSED", "", "failed"} {
		require.False(t, (&client.Job{State: state}).Final(), state)
	}
}

// Promise: clients 3.5
func TestDraft_3_5_CompletedAtOfUnfinishedJobIsIgnoredAndLogged(t *testing.T) {
	t.Parallel()
	const document = `{"jobId":"j","jobStatus":%q,"completedAt":"2030-01-31T12:00:00Z"}`
	for status, ignored := range map[string]bool{"PROCESSING": true, "ACCEPTED": true, "PAUSED": true, "FAILED": false} {
		o := parse(t, fmt.Sprintf(document, status))
		require.Equal(t, ignored, o.CompletedAt.IsZero(), status)
		require.Equal(t, ignored, len(o.Warnings) == 1, status)
	}
	var log bytes.Buffer
	s := serveWith(t, client.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, ok(fmt.Sprintf(document, "PROCESSING")))
	o := must(s.c.Attempt(t.Context(), "j", 1))(t)
	require.True(t, o.CompletedAt.IsZero())
	require.Contains(t, log.String(), "completedAt is ignored")
}

// Promise: clients 3.6, 3.7
func TestDraft_3_6_and_3_7_RetryPermission(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]bool{
		`{"jobStatus":"FAILED","retryable":true}`:                    true,
		`{"jobStatus":"TIMED_OUT","retryable":true}`:                 true,
		`{"retryable":true}`:                                         true,
		`{"jobStatus":"FAILED"}`:                                     false,
		`{"jobStatus":"FAILED","retryable":false}`:                   false,
		`{"jobStatus":"FAILED","retryAfter":5}`:                      false,
		`{"jobStatus":"FAILED","retryable":false,"retryAfter":5}`:    false,
		`{"jobStatus":"PROCESSING","retryable":true}`:                false,
		`{"jobStatus":"PAUSED","retryable":true,"retryAfter":1}`:     false,
		`{"jobStatus":"COMPLETED","retryable":true}`:                 false,
		`{"jobStatus":"FAILED","retryable":null,"retryAfter":1}`:     false,
		`{"jobStatus":"FAILED","retryable":1,"retryAfter":1}`:        false,
		`{"jobStatus":"COMPLETED_WITH_ERRORS","retryable":true}`:     true,
		`{"jobStatus":"FAILED","retryable":true,"retryAfter":99999}`: true, // permitted, but RetryDelay refuses such a long wait
	} {
		o := parse(t, document)
		require.Equal(t, want, o.Retryable(), document)
		_, ok := o.RetryDelay(time.Now(), 1)
		require.Equal(t, want && (o.RetryAfter == nil || *o.RetryAfter <= 3600), ok, document)
	}
}

// Promise: clients 3.7, 9.4
func TestDraft_3_7_and_9_4_TheWait(t *testing.T) {
	t.Parallel()
	ended := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	const completed = `,"completedAt":"2030-01-31T12:00:00Z"`
	s := time.Second
	for name, test := range map[string]struct {
		members string
		late    time.Duration // time since completedAt or, without completedAt, since the receipt
		try     int
		least   time.Duration
		never   bool
	}{
		"retryAfter counts from completedAt":              {`,"retryAfter":30` + completed, 10 * s, 1, 20 * s, false},
		"without completedAt, it counts from the receipt": {`,"retryAfter":30`, 10 * s, 1, 20 * s, false},
		"delayed by hours":                                {`,"retryAfter":30` + completed, 5 * time.Hour, 1, s, false},
		"the server's clock is ahead":                     {`,"retryAfter":30` + completed, -time.Hour, 1, 30 * s, false},
		"0 waits a second":                                {`,"retryAfter":0` + completed, 0, 1, s, false},
		"0, and delayed by an hour":                       {`,"retryAfter":0` + completed, time.Hour, 1, s, false},
		"no retryAfter":                                   {completed, 0, 1, s, false},
		"second try":                                      {`,"retryAfter":0`, 0, 2, 2 * s, false},
		"third try":                                       {`,"retryAfter":0`, 0, 3, 4 * s, false},
		"fourth try":                                      {`,"retryAfter":0`, 0, 4, 8 * s, false},
		"no sixth submission":                             {`,"retryAfter":0`, 0, 5, 0, true},
		"the longest wait":                                {`,"retryAfter":3600`, 0, 1, 3600 * s, false},
		"too long":                                        {`,"retryAfter":3601`, 0, 1, 0, true},
		"too long, although it has passed":                {`,"retryAfter":3601` + completed, 3 * time.Hour, 1, 0, true},
		"larger than any integer":                         {`,"retryAfter":99999999999999999999`, 0, 1, 0, true},
		"an integer with an exponent":                     {`,"retryAfter":3e1`, 0, 1, 30 * s, false},
	} {
		o := parse(t, `{"jobStatus":"FAILED","retryable":true`+test.members+`}`)
		o.ReceivedAt = ended
		waits := map[time.Duration]bool{}
		for range 50 {
			wait, ok := o.RetryDelay(ended.Add(test.late), test.try)
			require.Equal(t, !test.never, ok, name)
			if ok {
				require.GreaterOrEqual(t, wait, test.least, name)
				require.LessOrEqual(t, wait, test.least+time.Duration(1<<(test.try-1))*s/2, name)
				waits[wait] = true
			}
		}
		if !test.never {
			require.Greater(t, len(waits), 10, "%s: there is jitter", name)
		}
	}
}

// Promise: clients 7.1
func TestDraft_7_Results(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"status":207,"jobStatus":"COMPLETED_WITH_ERRORS","results":[{"itemId":"a","status":"FAILED","retryable":true,"new":1},
		{"itemId":"b","status":"ODD"}]}`)
	require.Equal(t, []client.ItemOutcome{{ItemID: "a", Status: "FAILED", Retryable: true}, {ItemID: "b", Status: "ODD"}}, o.Results)
	require.False(t, client.TerminalStatus(o.Results[1].Status))
	for body, kind := range map[string]string{``: "", `[]`: "", `{`: "", `7`: "", `{}`: "text/html"} {
		require.Error(t, second(client.ParseOutcome(kind, []byte(body))), body)
	}
}

// Promise: clients 3.1, F.1, F.2
func TestDraft_F_2_UnknownMembersAreIgnored(t *testing.T) {
	t.Parallel()
	o := parse(t, `{"jobStatus":"FAILED","jobColour":{"deep":[1,{"x":null}]},"retryAfterDays":1}`)
	require.True(t, o.Terminal())
	require.Contains(t, o.Extensions, "jobColour")
	s := serve(t, ok(`{"job_id":"j","state":"RUNNING","new_member":{"a":[]},"progress":{"percentage":4,"mood":"good"},"links":{"self":"/x",
		"other":"/y"}}`))
	job := must(s.c.Job(t.Context(), "j"))(t)
	require.Equal(t, 4, job.Progress.Percentage)
}

func TestOutcomesSurviveJSON(t *testing.T) {
	t.Parallel()
	const document = `{"type":"https://x/p","title":"T","status":500,"detail":"D","instance":"/i","code":"C","jobId":"j","jobStatus":"FAILED",
		"submittedAt":"2030-01-31T12:00:00Z","completedAt":"2030-01-31T12:00:01.5Z","correlationId":"c","processingStage":"rendering","attempt":2,
		"scenario":{"workKind":"K","durationMs":500,"expectedOutcome":"FAILED"},"language":"en",
		"retryable":true,"retryAfter":0,"results":[{"itemId":"a","status":"FAILED","detail":"","retryable":true,"processingStage":""}],
		"emitted":{"name":"n","data":{"x":1}},"jobColour":{"deep":[1]}}`
	o := parse(t, document)
	text := must(o.MarshalJSON())(t)
	require.JSONEq(t, document, string(text))
	back := parse(t, string(text))
	back.ReceivedAt = o.ReceivedAt
	require.Equal(t, o, back)
	require.JSONEq(t, `{}`, string(must(client.Outcome{}.MarshalJSON())(t)), "zero values are omitted")
}
