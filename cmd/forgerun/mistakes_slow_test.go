//go:build slow

package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	described "github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/proxy"
)

// With longJobs, clients must poll a job more than once. The worker can run 300 jobs at once, so that no job waits.
var longJobs = env{"FORGERUN_TIME_SCALE": "4", "FORGERUN_WORKER_CONCURRENCY": "300"}

// With every seed, each mistake is found by its rule. No unrelated rule is broken.
func TestRulesCatchMistakes(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed, longJobs)
	styles := clientStyles(t)
	for seed := 1; seed <= seeds(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			parallelIfMany(t)
			var all sync.WaitGroup
			for name, m := range mistakes {
				all.Go(func() {
					t.Run(name, func(t *testing.T) {
						command := append([]string{"env", "MISTAKE=" + name}, styles[m.style]...)
						said, v, broken, _ := s.runJudged(t, api, command, m.profile, seed)
						if m.rule == "" {
							requireCaught(t, name, m.also, broken, said)
						}
						require.Contains(t, broken, ruleOf(name), "%s\n%+v", said, v)
					})
				})
			}
			all.Wait()
		})
	}
}

// The proxy gets no description of ForgeRun's API. It still finds all mistakes that are not marked `own`. It blames no correct client.
func TestProxyCatchesMistakes(t *testing.T) {
	s, service, _ := newDelivering(t, withTestbed, longJobs)
	styles := clientStyles(t)
	judge := func(t *testing.T, name, style string, profile fault.Profile, seed int) (
		said string, broken map[string]verdict.Result, err error,
	) {
		t.Helper()
		return s.runProxied(t, service, append([]string{"env", "MISTAKE=" + name}, styles[style]...), profile, seed)
	}
	for seed := 1; seed <= seeds(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			parallelIfMany(t)
			var all sync.WaitGroup
			for name, m := range mistakes {
				if m.own {
					continue
				}
				all.Go(func() {
					t.Run(name, func(t *testing.T) {
						said, broken, _ := judge(t, name, m.style, m.profile, seed)
						require.Contains(t, broken, ruleOf(name), "%s\n%+v", said, broken)
					})
				})
			}
			for _, profile := range fault.Profiles {
				for _, style := range []string{"poll", "long-poll", "pool", "two-processes", "curl"} { // clients that read each job at its own URL
					all.Go(func() {
						t.Run(string(profile)+"/"+style, func(t *testing.T) {
							said, broken, err := judge(t, "", style, profile, seed)
							requireEnded(t, profile, said, err)
							require.Empty(t, broken, said)
						})
					})
				}
			}
			all.Wait()
		})
	}
}

func (s *stack) runProxied(t *testing.T, service *proc, command []string, profile fault.Profile, seed int) (
	said string, broken map[string]verdict.Result, ended error,
) {
	t.Helper()
	target, err := url.Parse(service.url)
	require.NoError(t, err)
	unknown, err := described.Parse([]byte("rules: [outcome-learned, stop-at-end, tolerant-reader, time-outs]"))
	require.NoError(t, err)
	p := proxy.New(target, unknown, slog.New(slog.DiscardHandler))
	listener, err := p.Listen("127.0.0.1:0")
	require.NoError(t, err)
	server := p.Server()
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	base := "http://" + listener.Addr().String()
	ask := func(method, path, body string, into any) {
		request, err := http.NewRequestWithContext(s.ctx(), method, base+"/-/forgerun/v1/testbed/sessions"+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		require.Equal(t, 2, answer.StatusCode/100)
		require.NoError(t, json.NewDecoder(answer.Body).Decode(into))
	}
	var session verdict.Session
	ask("POST", "", fmt.Sprintf(`{"profile":%q,"seed":%d}`, profile, seed), &session)
	said, ended = s.newUser(service).run(t, base, command)
	ask("POST", "/"+session.ID+"/end", "", &session)
	var v verdict.Verdict
	ask("GET", "/"+session.ID+"/verdict", "", &v)
	return said, brokenIn(v), ended
}

func requireCaught(t *testing.T, rule string, also []string, broken map[string]verdict.Result, said string) {
	t.Helper()
	require.Contains(t, broken, rule, said)
	for name, result := range broken {
		require.Contains(t, append(also, rule), name, "%s\n%+v", said, result)
	}
}

// The verdict finds that a client does not renew its expiring key.
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
	// A job may end just before the key expires, so that the client cannot read its outcome.
	requireCaught(t, "key-renewal", []string{"outcome-learned"}, broken, string(said))
}
