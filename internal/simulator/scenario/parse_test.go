package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/simulator/scenario"
)

func mistakes(t *testing.T, text string) []string {
	t.Helper()
	_, err := scenario.Parse("dir/x.yaml", []byte(text))
	require.Error(t, err)
	var list []string
	for _, line := range strings.Split(err.Error(), "\n") {
		list = append(list, strings.TrimPrefix(line, "dir/x.yaml:"))
	}
	return list
}

func TestWholeScenario(t *testing.T) {
	t.Parallel()
	const text = `
description: |
  Two lines
  of text.
seed: 18446744073709551615
duration: 1m30s
jobs: 1_000
drain: 2h
tenants: 3
arrival:
  open:
    - {for: 10s, from: 30/m, to: 2.5/s, arrivals: poisson}
    - {for: 500ms, burst: 20, every: 100ms}
    - {for: 5s, rate: 200}
    - {for: 5s, burst: 2}
pick: weighted
mix:
  - {kind: FAIL_IMMEDIATE, weight: 0.5, retry: {max: 3, share: 12.5%}, auto_retry: true, params_bytes: 10, callback: cb, expect: FAILED}
  - {kinds: [SCHEDULED_ON_TIME, RUNS_LONG], type: DEFERRED, ahead: 5s..20s, cancel: {in: CREATED, after: 1s, share: 0.25}}
  - {kind: SUCCESS_FAST, duplicate: {copies: 2, key: different, at_once: true, share: 1}}
  - {kind: SUCCESS_FAST, duplicate: {}, retry: {}, cancel: {in: QUEUED}, batch: 20}
  - {type: EMIT_EVENT}
receivers:
  - {name: cb, callback: true, answers: [{hang: true, share: 10%}, {status: 429, first: 2}, {status: 503},
      {reset: true, after: 1s, share: 20%}]}
  - {name: some, events: [job.succeeded, "*"], answers: [{status: 500, share: 5%}]}
  - {name: all}
readers: {streams: 2, slow: 1, slow_pause: 3s, poll: 50%}
schedules: {count: 3, every: 2s}
service: {workers: 1..4, down: 5s..8s, concurrency: 7, time_scale: 0,
  env: {FORGERUN_MAX_RETRIES: 3, FORGERUN_DB_TIMEOUT: 2s, FORGERUN_WEBHOOK_ALLOW_PRIVATE: true}}
chaos: kill=30s,redis-pause=1m30s
expect: {accepted: 75%, refused: 5%, submit_p99: 200ms, finish_p99: 10s}
`
	got, err := scenario.Parse("some/my wave.yaml", []byte(text))
	require.NoError(t, err)
	scale, refused := 0.0, scenario.Share(0.05)
	down := scenario.Range{Min: 5 * time.Second, Max: 8 * time.Second}
	require.Equal(t, &scenario.Scenario{
		Text: text, Name: "my-wave", Description: "Two lines\nof text.\n", Seed: 1<<64 - 1,
		Duration: 90 * time.Second, Jobs: 1000, Drain: 2 * time.Hour, Tenants: 3,
		Arrival: scenario.Arrival{Open: []scenario.Phase{
			{For: 10 * time.Second, From: 0.5, To: 2.5, Poisson: true, Every: 10 * time.Second},
			{For: 500 * time.Millisecond, Burst: 20, Every: 100 * time.Millisecond},
			{For: 5 * time.Second, From: 200, To: 200, Every: 5 * time.Second},
			{For: 5 * time.Second, Burst: 2, Every: 5 * time.Second},
		}},
		Pick: scenario.Weighted,
		Mix: []scenario.Work{
			{
				Kinds: []string{"FAIL_IMMEDIATE"}, Weight: 0.5, Type: scenario.Execute, Retry: &scenario.Retry{Max: 3, Share: 0.125},
				AutoRetry: true, ParamsBytes: 10, Callback: "cb", Expect: "FAILED",
			},
			{
				Kinds: []string{"SCHEDULED_ON_TIME", "RUNS_LONG"}, Weight: 1, Type: scenario.Deferred,
				Ahead:  scenario.Range{Min: 5 * time.Second, Max: 20 * time.Second},
				Cancel: &scenario.Cancel{In: "CREATED", After: scenario.Range{Min: time.Second, Max: time.Second}, Share: 0.25},
			},
			{
				Kinds: []string{"SUCCESS_FAST"}, Weight: 1, Type: scenario.Execute,
				Duplicate: &scenario.Duplicate{Share: 1, Copies: 2, Key: scenario.DifferentKeys, AtOnce: true},
			},
			{
				Kinds: []string{"SUCCESS_FAST"}, Weight: 1, Type: scenario.Execute, Batch: 20,
				Duplicate: &scenario.Duplicate{Share: 1, Copies: 1, Key: scenario.SameKey},
				Retry:     &scenario.Retry{Share: 1, Max: 1}, Cancel: &scenario.Cancel{In: "QUEUED", Share: 1},
			},
			{Weight: 1, Type: scenario.EmitEvent},
		},
		Receivers: []scenario.Receiver{
			{Name: "cb", Callback: true, Answers: []scenario.Answer{
				{Hang: true, Share: 0.1}, {Status: 429, First: 2}, {Status: 503, Share: 0.7}, {Reset: true, After: time.Second, Share: 0.2},
			}},
			{Name: "some", Events: []string{"job.succeeded", "*"}, Answers: []scenario.Answer{
				{Status: 500, Share: 0.05}, {Status: 200, Share: 0.95},
			}},
			{Name: "all", Events: []string{"*"}, Answers: []scenario.Answer{{Status: 200, Share: 1}}},
		},
		Readers:   scenario.Readers{Streams: 2, Slow: 1, SlowPause: 3 * time.Second, Poll: 0.5},
		Schedules: scenario.Schedules{Count: 3, Every: 2 * time.Second},
		Service: scenario.Service{Workers: "1..4", Concurrency: 7, TimeScale: &scale, Down: down, Env: map[string]string{
			"FORGERUN_MAX_RETRIES": "3", "FORGERUN_DB_TIMEOUT": "2s", "FORGERUN_WEBHOOK_ALLOW_PRIVATE": "true",
		}},
		Chaos:  "kill=30s,redis-pause=1m30s",
		Expect: scenario.Expect{Accepted: 0.75, Refused: &refused, SubmitP99: 200 * time.Millisecond, FinishP99: 10 * time.Second},
	}, got)
}

func TestSmallestScenario(t *testing.T) {
	t.Parallel()
	const text = `{jobs: 1, arrival: {closed: {clients: 2}}, mix: [{kind: ALL}]}`
	got, err := scenario.Parse("-.yaml", []byte(text))
	require.NoError(t, err)
	require.Len(t, got.Mix[0].Kinds, 31)
	got.Mix = nil
	require.Equal(t, &scenario.Scenario{
		Text: text, Name: "scenario", Seed: 1, Jobs: 1, Drain: time.Minute, Tenants: 1, Pick: scenario.Weighted,
		Arrival: scenario.Arrival{Closed: &scenario.Closed{Clients: 2}},
		Readers: scenario.Readers{Streams: 1, SlowPause: 100 * time.Millisecond}, Schedules: scenario.Schedules{Every: time.Second},
		Service: scenario.Service{Workers: "1", Concurrency: 100}, Expect: scenario.Expect{Accepted: 0.9},
	}, got)
}

func frame(members string) string {
	base := map[string]string{"jobs": "1", "arrival": "{closed: {clients: 9}}", "mix": "[{kind: SUCCESS_FAST}]"}
	text := members + "\n"
	for _, name := range []string{"jobs", "arrival", "mix"} {
		if !strings.Contains("\n"+members, "\n"+name+":") {
			text += name + ": " + base[name] + "\n"
		}
	}
	return text
}

var singleMistakes = []struct{ members, want string }{
	{"durtion: 5s", `1:1: unknown member "durtion"; allowed in a scenario: arrival, chaos, description,`},
	{"seed: -1", `1:7: seed must be a whole number from 0 to 18446744073709551615, not "-1"`},
	{"jobs: \"5\"", `1:7: jobs must be a whole number from 1 to 1000000000, not the text "5"`},
	{"tenants: 10", `1:10: with 10 tenants, arrival.closed.clients must be at least as high, not 9`},
	{"pick: random", `1:7: pick must be one of weighted, in_turn, not "random"`},
	{"readers: {poll: 101%}", `1:17: poll must be a share from 0% to 100%, such as 5% or 0.05, not "101%"`},
	{"mix: [{kind: ALL}, 5]", `1:20: an entry of mix: got number, want object`},
	{"arrival: {}", `1:10: arrival must have one of closed (clients that wait for their jobs) and open`},
	{"arrival: {closed: {}}", `1:19: closed: missing property 'clients'`},
	{
		"arrival: {closed: {clients: 1, think: 5s..2s}}",
		`1:39: think must be a duration or a range of them, such as 5s or 5s..20s, from 0s to 1h, not "5s..2s"`,
	},
	{
		"arrival: {open: [{rate: 200/h}]}",
		`1:25: rate must be jobs per second, such as 200 or 200/s, or per minute, such as 30/m: 0, or from 0.001 to 1000000 per second, ` +
			`not "200/h"`,
	},
	{"arrival: {open: [{rate: 0}]}", `1:17: no phase sends requests: at least one needs a rate above 0 or a burst`},
	{"arrival: {open: [{rate: 1, burst: 2}]}", `1:18: a phase has one of rate, from and to, and burst`},
	{"arrival: {open: [{from: 1, to: 2}]}", `1:18: a ramp needs the member for, or the scenario a duration, so that its end is known`},
	{"pick: in_turn\nmix: [{kind: ALL, weight: 2}]", `2:27: weight has no meaning with pick: in_turn`},
	{"mix: [{kind: ALL, type: DEFERRED}]", `1:7: DEFERRED needs the member ahead: how long after its submission the job is due`},
	{"mix: [{kind: ALL, batch: 2, duplicate: {key: different}}]", `1:40: a batch is duplicated with key: same only`},
	{"mix: [{kind: ALL, callback: x}]", `1:29: callback must name a receiver with callback: true, but the scenario has none`},
	{
		"receivers: [{name: a}, {name: b, callback: true}]\nmix: [{kind: ALL, callback: a}]",
		`2:29: callback must name a receiver with callback: true (b), not "a"`,
	},
	{"receivers: [{name: a}, {name: a}]", `1:31: the name "a" is used twice: each receiver needs its own name`},
	{"receivers: [{name: a, answers: [{status: 500, hang: true}]}]", `1:42: an answer has one of status, hang and reset`},
	{
		"receivers: [{name: a, answers: [{share: 60%}, {share: 0.5}]}]",
		`1:33: the shares of the answers add up to 110%, but at most 100% is allowed`,
	},
	{"receivers: [{name: a, answers: [{status: 500}, {hang: true}]}]", `1:48: only one response may omit its share, and line 1 already does`},
	{
		"service: {workers: 0}",
		`1:20: workers must be a number of processes from 1 to 32, such as 2, a ramp, such as 1..4, or steps, such as 1,4,2, not "0"`,
	},
	{"chaos: kill", `1:8: chaos must be faults and their mean intervals, such as kill=30s,cut=5s, not "kill"`},
}

func TestMistakesNamePlaceAndAllowedValues(t *testing.T) {
	t.Parallel()
	for _, test := range singleMistakes {
		got := mistakes(t, frame(test.members))
		require.Len(t, got, 1, "%s\n%s", test.members, strings.Join(got, "\n"))
		require.Truef(t, strings.HasPrefix(got[0], test.want), "%s\nwant %s\ngot  %s", test.members, test.want, got[0])
	}
}

func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                         "x.yaml: the file is empty",
		"# nothing":                "x.yaml: the file is empty",
		"seed: 1\nseed: 2":         "line 2: mapping key \"seed\" already defined at line 1",
		"a: [":                     "x.yaml: yaml: line 1",
		frame("---") + "\n---\na":  "one scenario",
		strings.Repeat("#", 1<<17): "at most 65536 bytes",
	} {
		_, err := scenario.Parse("x.yaml", []byte(text))
		require.ErrorContains(t, err, want)
	}
}
