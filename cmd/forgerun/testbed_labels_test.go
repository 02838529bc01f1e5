package main

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/verdict"
)

// labelled returns the one session with a label.
func (u *user) labelled(api *proc, label string) (n verdict.Session) {
	u.s.t.Helper()
	var list struct{ Data []verdict.Session }
	a := u.expect(api, http.StatusOK, "GET", "/v1/testbed/sessions?label="+label, "")
	require.NoError(u.s.t, json.Unmarshal([]byte(a.body), &list))
	require.Len(u.s.t, list.Data, 1)
	return list.Data[0]
}

// Concurrent tests with one key all get the faults, and each verdict covers only the test's own requests, jobs and deliveries.
func TestLabelledTestsAreJudgedApart(t *testing.T) {
	s, api, u := newDelivering(t, testBed)
	main := u.startSession(api, `{"rules":["idempotency-key","retry-after","tampered-refused"]}`)
	u.disturb(api, `[{"match":{"operation":"submitJob","nth":1},"effect":{"close":"after_commit"}},
		{"match":{"operation":"delivery","nth":1},"effect":{"tamper":"body"}}]`)
	correct := newReceiver(t, nil)
	shared, err := client.New(client.Config{URL: api.url, Key: u.key})
	require.NoError(t, err)
	correct.respondWith(verifying(shared, ""))
	trusting := newReceiver(t, nil)
	run := func(c *client.Client, callback string) {
		_, err := c.Run(s.ctx(), client.JobRequest{Type: client.Execute, WorkKind: client.KindSuccessFast, Callback: callback})
		require.NoError(t, err)
	}
	tests := map[string]struct {
		act   func(c *client.Client, label string)
		rules []string // broken rules
	}{
		"correct":  {func(c *client.Client, _ string) { run(c, correct.url+"/a") }, nil},
		"trusting": {func(c *client.Client, _ string) { run(c, trusting.url+"/b") }, []string{"tampered-refused"}},
		"keyless": {func(c *client.Client, label string) {
			body := execute("SUCCESS_FAST", `"correlation_id":"keyless"`)
			_, _, err := u.sendUnchecked(api, "POST", "/v1/jobs", body, "ForgeRun-Session", label)
			require.Error(t, err)
			_, text, err := u.sendUnchecked(api, "POST", "/v1/jobs", body, "ForgeRun-Session", label)
			require.NoError(t, err)
			var made client.Accepted
			require.NoError(t, json.Unmarshal([]byte(text), &made))
			_, err = c.Wait(s.ctx(), made.JobID)
			require.NoError(t, err)
		}, []string{"idempotency-key"}},
		"impatient": {func(c *client.Client, label string) {
			made, err := c.Submit(s.ctx(), client.JobRequest{
				Type: client.Execute, WorkKind: client.KindCustom, Params: json.RawMessage(`{"behavior":{"duration":"2s"}}`),
			})
			require.NoError(t, err)
			for range 5 {
				_, _, err := u.sendUnchecked(api, "GET", "/v1/jobs/"+made.JobID, "", "ForgeRun-Session", label)
				require.NoError(t, err)
			}
			_, err = c.Wait(s.ctx(), made.JobID)
			require.NoError(t, err)
		}, []string{"retry-after"}},
	}
	var running sync.WaitGroup
	for label, test := range tests {
		running.Go(func() { test.act(shared.WithSession(label), label) })
	}
	running.Wait()
	s.awaitCount("the forged deliveries are recorded", 4,
		`SELECT count(*) FROM testbed_exchanges WHERE client_id = $1 AND exchange->>'operation' = 'delivery'`, u.id)

	v, broken := u.verdict(api, main)
	require.Empty(t, broken)
	require.Zero(t, v.Recorded, "all requests had a label")
	for label, test := range tests {
		n := u.labelled(api, label)
		require.NotNil(t, n.EndedAt, "it ends with the session without a label")
		v, broken := u.verdict(api, n.ID)
		require.Equal(t, label, v.Label)
		require.ElementsMatch(t, test.rules, slices.Collect(maps.Keys(broken)), "%s: %+v", label, broken)
		require.Positive(t, v.Counts[verdict.OK]+len(broken))
	}
}
