package main

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// A mistake can be switched on in the clients of testdata/styles. The environment variable MISTAKE selects the mistake.
type mistake struct {
	rule    string // rule that must find the mistake; "": the rule has the name of the mistake
	style   string
	profile fault.Profile // profile that exposes the mistake; "": no faults needed
	also    []string      // other rules that the mistake may break
	own     bool          // a test bed finds the mistake, but a proxy without an API description does not
}

var mistakes = map[string]mistake{
	"retry-after":          {style: "poll", profile: fault.FlakyNetwork},
	"list-polling":         {style: "list", profile: fault.FlakyNetwork, own: true},
	"stop-at-end":          {style: "poll", profile: fault.FlakyNetwork},
	"conditional-requests": {style: "poll", profile: fault.FlakyNetwork, own: true}, // a proxy judges only clients that send If-None-Match
	"backoff":              {style: "poll", profile: fault.Overloaded},
	"retry-only-retryable": {style: "poll", profile: fault.FlakyNetwork, own: true},
	"idempotency-key":      {style: "poll", profile: fault.Overloaded, own: true},
	// The client's mistake is the same as for idempotency-key. This profile loses responses, so the client creates two jobs.
	"no-duplicates": {style: "poll", profile: fault.FlakyNetwork, also: []string{"idempotency-key", "one-job-per-intention"}},
	// The mistake also breaks correlation-ids: requests with the same correlation id must have the same body.
	"same-body":             {style: "poll", profile: fault.FlakyNetwork, also: []string{"correlation-ids"}},
	"one-job-per-intention": {style: "webhook", profile: fault.FlakyNetwork, own: true},
	// The client does not retry the lost submission, so it also breaks retry-only-retryable.
	"lost-answer":         {style: "poll", profile: fault.FlakyNetwork, also: []string{"retry-only-retryable"}, own: true},
	"outcome-learned":     {style: "poll", profile: fault.FlakyNetwork},
	"stream-resume":       {style: "hint-and-read", profile: fault.FlakyNetwork, own: true},
	"half-events":         {style: "hint-and-read", profile: fault.Failover, own: true},
	"deliveries-answered": {style: "hint-and-read", profile: fault.FlakyNetwork, own: true},
	"tampered-refused":    {style: "webhook", profile: fault.DuplicateDeliveries, own: true},
	"repeated-delivery":   {style: "webhook", profile: fault.DuplicateDeliveries, own: true},
	"not-retryable":       {style: "poll", profile: fault.FlakyNetwork, own: true},
	"no-key-in-url":       {style: "poll", profile: fault.FlakyNetwork},
	"connection-reuse":    {style: "poll", profile: fault.Overloaded, own: true}, // a proxy cannot see who closed the connections
	"time-outs":           {style: "poll", profile: fault.StaleConnections, also: []string{"outcome-learned"}},
	"redirects":           {style: "poll", profile: fault.Moved, also: []string{"retry-only-retryable", "outcome-learned"}},
	"content-negotiation": {style: "poll", profile: fault.Overloaded, own: true},
	"correlation-ids":     {style: "poll", profile: fault.FlakyNetwork, own: true},

	"date-is-no-wait":           {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},
	"garbage-is-no-wait":        {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},
	"missing-is-no-wait":        {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},
	"odd-number-is-no-wait":     {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},
	"first-retry-after-kept":    {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},
	"retry-after-capped":        {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},
	"large-retry-after-ignored": {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},
	"shorter-wait-wins":         {rule: "backoff", style: "poll", profile: fault.OddRetryAfter},

	"unknown-member-is-an-error":             {rule: "tolerant-reader", style: "poll", profile: fault.NewVersion},
	"null-is-an-error":                       {rule: "tolerant-reader", style: "poll", profile: fault.NewVersion},
	"missing-member-is-an-error":             {rule: "tolerant-reader", style: "poll", profile: fault.NewVersion},
	"unknown-state-is-the-end":               {rule: "tolerant-reader", style: "poll", profile: fault.NewVersion},
	"unknown-state-is-a-failure":             {rule: "tolerant-reader", style: "poll", profile: fault.NewVersion},
	"unknown-problem-is-the-end":             {rule: "tolerant-reader", style: "poll", profile: fault.NewVersion},
	"one-state-is-the-end":                   {rule: "stop-at-end", style: "poll", profile: fault.NewVersion, own: true},
	"unknown-state-of-a-delivery-is-refused": {rule: "deliveries-answered", style: "webhook", profile: fault.NewVersion, own: true},
	"unknown-event-ends-the-stream":          {rule: "outcome-learned", style: "stream", profile: fault.NewVersion, own: true},

	"401-is-the-end": {rule: "outcome-learned", style: "poll", profile: fault.Credentials},
	"endless-401":    {rule: "retry-only-retryable", style: "poll", profile: fault.Credentials},
	"renewal-storm":  {rule: "retry-only-retryable", style: "poll", profile: fault.Credentials, own: true},
	"403-at-once":    {rule: "backoff", style: "poll", profile: fault.Credentials},

	"404-is-the-end":       {rule: "outcome-learned", style: "poll", profile: fault.Eventual},
	"404-is-ordered-again": {rule: "one-job-per-intention", style: "poll", profile: fault.Eventual, own: true},
	"endless-404":          {rule: "retry-only-retryable", style: "poll", profile: fault.Eventual},
	"endless-410":          {rule: "retry-only-retryable", style: "poll", profile: fault.Eventual},

	"no-idempotency-key":       {rule: "idempotency-key", style: "poll", profile: fault.StaleConnections},
	"no-time-out-of-bodies":    {rule: "time-outs", style: "poll", profile: fault.StaleConnections},
	"retry-of-streams-ignored": {rule: "stream-resume", style: "stream", profile: fault.StaleConnections, own: true},
	"stream-id-forgotten":      {rule: "stream-resume", style: "stream", profile: fault.FlakyNetwork, own: true},

	"307-as-get":              {rule: "redirects", style: "poll", profile: fault.Moved},
	"308-as-get":              {rule: "redirects", style: "poll", profile: fault.Moved},
	"redirects-without-limit": {rule: "redirects", style: "poll", profile: fault.Moved},
	"key-to-another-host":     {rule: "no-key-elsewhere", style: "poll", profile: fault.Moved},

	"retries-inside-retries": {rule: "retry-budget", style: "poll", profile: fault.Outage},
	"server-error-at-once":   {rule: "backoff", style: "poll", profile: fault.Outage},
}

func ruleOf(name string) string {
	if rule := mistakes[name].rule; rule != "" {
		return rule
	}
	return name
}

// No entry of `mistakes` covers the rule key-renewal: TestKeyThatExpiresIsCaught does.
func TestEachRuleHasAMistake(t *testing.T) {
	t.Parallel()
	rules := map[string]bool{"key-renewal": true}
	for name := range mistakes {
		rules[ruleOf(name)] = true
	}
	require.ElementsMatch(t, verdict.IDs(), slices.Collect(maps.Keys(rules)))
}

var (
	mistakeProfile = regexp.MustCompile("^### Under `([^`]+)`$")
	mistakeItem    = regexp.MustCompile("^- [^`]+: `([^`]+)`(?:, `([^`]+)`)?(?: |$)")
)

func TestMistakesAreDocumented(t *testing.T) {
	t.Parallel()
	_, list, _ := strings.Cut(readText(t, "../../docs/reference/testbed.md"), "\n## Mistakes that are found\n")
	profile, documented := "", map[string][2]string{}
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if heading := mistakeProfile.FindStringSubmatch(line); heading != nil {
			profile = heading[1]
		}
		if item := mistakeItem.FindStringSubmatch(line); item != nil {
			documented[item[1]] = [2]string{profile, cmp.Or(item[2], item[1])}
		}
	}
	proven := map[string][2]string{}
	for name, m := range mistakes {
		proven[name] = [2]string{string(m.profile), ruleOf(name)}
	}
	require.Equal(t, proven, documented)
}
