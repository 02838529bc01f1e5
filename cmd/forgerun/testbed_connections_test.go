package main

import (
	"context"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConnectionsEnd(t *testing.T) {
	_, api, u := newService(t, withTestbed)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	ask := func(method, path string, patience time.Duration, headers ...string) (string, error) {
		t.Helper()
		client := &http.Client{Transport: transport, Timeout: patience}
		_, text, err := u.sendBy(client, api, method, path, execute("SUCCESS_FAST"), headers...)
		return text, err
	}
	jobs := func() int { return u.s.count(`SELECT count(*) FROM jobs WHERE client_id = $1`, u.id) }
	for _, c := range []struct {
		effect        string
		first, second error // errors of two submissions on one connection
		made          int   // number of created jobs
	}{
		{`{"close": "before", "reset": true}`, syscall.ECONNRESET, nil, 1},
		{`{"close": "after_commit", "reset": true}`, syscall.ECONNRESET, nil, 2},
		{`{"close": "mid_body", "reset": true}`, syscall.ECONNRESET, nil, 2},
		{`{"next_request": "before"}`, nil, io.EOF, 1},
		{`{"next_request": "before", "reset": true}`, nil, syscall.ECONNRESET, 1},
		{`{"next_request": "never"}`, nil, context.DeadlineExceeded, 1},
		{`{"close": "never"}`, context.DeadlineExceeded, nil, 1},
		{`{"close": "stall"}`, context.DeadlineExceeded, nil, 2},
	} {
		before, effect := jobs(), []string{"ForgeRun-Fault", c.effect}
		for _, want := range []error{c.first, c.second, nil} {
			patience := time.Duration(0)
			if want == context.DeadlineExceeded { //nolint:errorlint // the table contains the error itself, never wrapped
				patience = 300 * time.Millisecond
			}
			_, err := ask("POST", "/v1/jobs", patience, effect...)
			require.ErrorIs(t, err, want, c.effect)
			effect = nil
		}
		require.Equal(t, before+c.made+1, jobs(), c.effect)
	}
	job := u.submit(api, execute("SUCCESS_FAST"))
	text, err := ask("GET", "/v1/jobs/"+job+"/events", 0, "Accept", "text/event-stream", "ForgeRun-Fault", `{"cut_after": 1, "reset": true}`)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Contains(t, text, "job-created")

	_, err = ask("GET", "/v1/jobs", 0, "ForgeRun-Fault", `{"refuse": "3s"}`)
	require.NoError(t, err)
	_, err = ask("GET", "/v1/jobs", 0)
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "the idle connection is closed, too")
	require.Eventually(t, func() bool {
		_, err := ask("GET", "/v1/jobs", 0)
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}
