//go:build slow

package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// mistakeOf is a style in which a rule is broken, under a profile that shows it, and the rules that are broken with it.
type mistakeOf struct {
	style   string
	profile fault.Profile // none: the client asks for the fault itself, or no fault is needed
	also    []string
}

// mistakes has one for each rule; that of key-renewal is to know nothing of it.
var mistakes = map[string]mistakeOf{
	"retry-after":          {style: "poll", profile: fault.FlakyNetwork},
	"list-polling":         {style: "list", profile: fault.FlakyNetwork},
	"stop-at-end":          {style: "poll", profile: fault.FlakyNetwork},
	"conditional-requests": {style: "poll", profile: fault.FlakyNetwork},
	"backoff":              {style: "poll", profile: fault.Overloaded},
	"retry-only-retryable": {style: "poll", profile: fault.FlakyNetwork},
	"idempotency-key":      {style: "poll", profile: fault.Overloaded},
	// The same mistake where answers are lost: there are two jobs.
	"no-duplicates": {style: "poll", profile: fault.FlakyNetwork, also: []string{"idempotency-key", "one-job-per-intention"}},
	// A correlation id stands for one body, too.
	"same-body":             {style: "poll", profile: fault.FlakyNetwork, also: []string{"correlation-ids"}},
	"one-job-per-intention": {style: "webhook", profile: fault.FlakyNetwork},
	// Who forgets a submission does not try it again.
	"lost-answer":     {style: "poll", profile: fault.FlakyNetwork, also: []string{"retry-only-retryable"}},
	"outcome-learned": {style: "poll", profile: fault.FlakyNetwork},
	"stream-resume":   {style: "hint-and-read", profile: fault.FlakyNetwork},
	"half-events":     {style: "hint-and-read", profile: fault.Failover},
	// What it does not look at again may end.
	"tolerant-reader":     {style: "poll", also: []string{"outcome-learned"}},
	"deliveries-answered": {style: "hint-and-read", profile: fault.FlakyNetwork},
	"tampered-refused":    {style: "webhook", profile: fault.DuplicateDeliveries},
	"repeated-delivery":   {style: "webhook", profile: fault.DuplicateDeliveries},
	"not-retryable":       {style: "poll", profile: fault.FlakyNetwork},
	"no-key-in-url":       {style: "poll", profile: fault.FlakyNetwork},
	"connection-reuse":    {style: "poll", profile: fault.Overloaded},
	"time-outs":           {style: "poll"},
	"redirects":           {style: "poll"},
	"content-negotiation": {style: "poll", profile: fault.Overloaded},
	"correlation-ids":     {style: "poll", profile: fault.FlakyNetwork},
}

// Jobs take long enough to be polled more than once, and none waits for another.
var longJobs = env{"FORGERUN_TIME_SCALE": "4", "FORGERUN_WORKER_CONCURRENCY": "300"}

// TestMistakesAreCaught: a client that breaks one rule, and is right otherwise, hears of that rule and of no other, whatever the seed.
func TestMistakesAreCaught(t *testing.T) {
	rules := append(slices.Collect(maps.Keys(mistakes)), "key-renewal")
	require.ElementsMatch(t, verdict.IDs(), rules)
	s, api, _ := newDelivering(t, withTestbed, longJobs)
	styles := clientStyles(t)
	for seed := 1; seed <= seeds(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			parallelIfMany(t)
			var all sync.WaitGroup
			for rule, m := range mistakes {
				all.Go(func() {
					t.Run(rule, func(t *testing.T) {
						command := append([]string{"env", "STYLES_MISTAKE=" + rule}, styles[m.style]...)
						said, _, broken, _ := s.runJudged(t, api, command, m.profile, seed)
						requireCaught(t, rule, m.also, broken, said)
					})
				})
			}
			all.Wait()
		})
	}
}

func requireCaught(t *testing.T, rule string, also []string, broken map[string]verdict.Result, said string) {
	t.Helper()
	require.Contains(t, broken, rule, said)
	for name, result := range broken {
		require.Contains(t, append(also, rule), name, "%s\n%+v", said, result)
	}
}

// A client that does not renew its key is caught by a session in which the key expires.
func TestKeyThatExpiresIsCaught(t *testing.T) {
	s, api, u := newDelivering(t, withTestbed, longJobs)
	program := clientStyles(t)["poll"]
	session := u.startSession(api, "")
	short := s.startAPI(env{"FORGERUN_API_KEY_TTL": "6s"})
	key := u.expect(short, http.StatusCreated, "POST", "/v1/clients/"+u.id+"/keys", `{"scope":"submit"}`).text("api_key")
	s.secret(key)
	run := exec.CommandContext(t.Context(), program[0], program[1:]...)
	run.Env = append(os.Environ(), "FORGERUN_URL="+api.url, "FORGERUN_API_KEY="+key)
	said, err := run.CombinedOutput()
	require.Error(t, err, "the last job is not done when the key expires")
	_, broken := u.verdict(api, session)
	requireCaught(t, "key-renewal", []string{"outcome-learned"}, broken, string(said)) // of jobs that ended shortly before the key did
}
