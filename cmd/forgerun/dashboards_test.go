package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/job"
)

const (
	prometheusFolder  = "../../monitoring/prometheus"
	dashboardsPattern = "../../monitoring/grafana/dashboards/*.json"
)

// What a stack without trouble has no series of: answers with 5xx, internal
// failures, alerts that fire.
var absentWithoutTrouble = []string{
	`http_requests_total{code=~"5.."}`, `http_requests_total{code="429"}`,
	unplannedFailures(),
}

// unplannedFailures selects jobs that end with an internal failure although
// their kind is not meant to, in the way that the alert does.
func unplannedFailures() string {
	var planned []string
	for _, kind := range job.Kinds() {
		if reason, fails := kind.FailsOn(1); fails && reason.Spec().Code == job.CodeInternal {
			planned = append(planned, string(kind))
		}
	}
	return fmt.Sprintf(`jobs_failed_total{error_code=%q, work_kind!~%q}`, job.CodeInternal, strings.Join(planned, "|"))
}

// Every query of every dashboard and of the runbook, and every rule, is
// evaluated by a real Prometheus that scrapes one process of each role. Each
// metric that they name exists there, with the labels that they ask for.
func TestDashboardsAndRulesUseMetricsThatExist(t *testing.T) {
	t.Parallel()
	program := prometheusProgram(t)
	s := newStack(t, hooks)
	api := s.startLeader()
	p := startPrometheus(t, program, map[string]*proc{"api": api, "worker": s.startWorker(), "webhooks": s.startWebhooks()})
	p.eventually("the first scrapes", func() bool { return len(p.query(`up == 1`)) == len(p.targets) })
	s.doSomeOfEverything(api)

	queries := append(append(dashboardQueries(t), ruleQueries(t)...), runbookBlocks(t, "promql")...)
	require.Greater(t, len(queries), 150)
	selectors := map[string]bool{}
	for _, q := range queries {
		p.query(q) // fails the test if it cannot be evaluated
		found := selectorsOf(q)
		require.NotEmpty(t, found, "no metric in %s", q)
		for _, selector := range found {
			selectors[selector] = true
		}
	}
	require.Contains(t, selectors, unplannedFailures())
	for selector := range selectors {
		if strings.HasPrefix(selector, "ALERTS") || slices.Contains(absentWithoutTrouble, selector) {
			continue
		}
		p.eventually("a series for "+selector, func() bool { return len(p.query(selector)) > 0 })
	}
	p.requireRulesAreHealthy()
}

// doSomeOfEverything makes each series move that moves without faults.
func (s *stack) doSomeOfEverything(api *proc) {
	s.t.Helper()
	u := s.newUser(api)
	fails := newReceiver(s.t, answering(http.StatusInternalServerError))
	u.subscribe(api, newReceiver(s.t, nil).url)
	u.subscribe(api, fails.url, "job.failed")
	const sameKey = `"idempotency_key":"the-same"`
	const soon = 3 * time.Second // after the request has arrived, on a busy machine too
	ids := []string{
		u.submit(api, `{"type":"DEFERRED","work_kind":"SCHEDULED_ON_TIME","execution_at":"`+time.Now().Add(soon).UTC().Format(time.RFC3339Nano)+
			`"}`),
		u.submit(api, execute("SUCCESS_FAST", sameKey)),
		u.submit(api, execute("FAIL_IMMEDIATE")), u.submit(api, execute("RETRY_ON_FAIL", `"auto_retry":true`)),
	}
	require.Contains(s.t, ids, u.submit(api, execute("SUCCESS_FAST", sameKey)))
	far := u.submit(api, `{"type":"DEFERRED","work_kind":"SCHEDULED_FAR_FUTURE","execution_at":"2100-01-01T00:00:00Z"}`)
	require.Equal(s.t, http.StatusOK, u.call(api, "POST", "/v1/jobs/"+far+"/cancel", "").status)
	stranger := user{s: s, key: "frk_nobody"}
	require.Equal(s.t, http.StatusUnauthorized, stranger.call(api, "GET", "/v1/jobs/"+ids[0], "").status)
	s.awaitFinal(append(ids, far)...)
}

// The runbook's statements fit the schema, and its commands Redis.
func TestRunbookFitsTheStores(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.startLeader()
	const epoch = "forgerun:epoch"
	eventually(t, "Redis is used", func() bool { return s.rdb.Get(s.ctx(), epoch).Val() != "" })
	statements := runbookBlocks(t, "sql")
	require.NotEmpty(t, statements)
	for _, statement := range statements {
		_, err := s.db.Exec(s.ctx(), "EXPLAIN "+statement)
		require.NoError(t, err, statement)
	}
	commands := runbookBlocks(t, "redis")
	require.Contains(t, commands, "GET "+epoch)
	for _, command := range commands {
		var args []any
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		_, err := s.rdb.Do(s.ctx(), args...).Result()
		require.True(t, err == nil || err.Error() == "redis: nil", "%s: %v", command, err)
	}
}

// runbookBlocks gives the lines of the runbook's code blocks in a language.
func runbookBlocks(t *testing.T, language string) (lines []string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/runbook.md")
	require.NoError(t, err)
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	return lines
}

// dashboardQueries gives all queries of dashboards, with their variables filled
// in as Grafana would for "all".
func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	paths, err := filepath.Glob(dashboardsPattern)
	require.NoError(t, err)
	require.Len(t, paths, 3)
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	for _, path := range paths {
		var d struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, &d))
		for _, panel := range d.Panels {
			for _, target := range panel.Targets {
				queries = append(queries, fill.Replace(target.Expr))
			}
		}
	}
	return queries
}

func ruleQueries(t *testing.T) (queries []string) {
	t.Helper()
	for _, name := range []string{"recording.yml", "alerts.yml"} {
		content, err := os.ReadFile(filepath.Join(prometheusFolder, name))
		require.NoError(t, err)
		var file struct {
			Groups []struct{ Rules []struct{ Expr string } }
		}
		require.NoError(t, yaml.Unmarshal(content, &file))
		for _, group := range file.Groups {
			for _, rule := range group.Rules {
				queries = append(queries, rule.Expr)
			}
		}
	}
	return queries
}

var (
	quoted   = `"(?:[^"\\]|\\.)*"`
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	ranges   = regexp.MustCompile(`\[[^\]]*\]`)
	comments = regexp.MustCompile(`#[^\n]*`)
	selector = regexp.MustCompile(`[a-zA-Z_][\w:]*(?:\{(?:[^"}]|` + quoted + `)*\}|\s*\()?`)
	keywords = []string{"and", "or", "unless", "bool", "offset"}
)

// selectorsOf finds the metrics of a PromQL expression, each with its braces:
// the names that are neither functions nor keywords nor labels.
func selectorsOf(expr string) (found []string) {
	expr = comments.ReplaceAllString(expr, "")
	expr = ranges.ReplaceAllString(grouping.ReplaceAllString(expr, ""), "")
	for _, at := range selector.FindAllStringIndex(expr, -1) {
		name := expr[at[0]:at[1]]
		partOfANumber := at[0] > 0 && strings.ContainsAny(expr[at[0]-1:at[0]], "0123456789.") // such as 10m
		if !strings.HasSuffix(name, "(") && !slices.Contains(keywords, name) && !partOfANumber {
			found = append(found, name)
		}
	}
	return found
}

func TestSelectorsAreFound(t *testing.T) {
	t.Parallel()
	for expr, want := range map[string][]string{
		`sum by (le, kind) (rate(a_bucket{x="(}", y=~"b|c"}[5m:10s])) > 0`:     {`a_bucket{x="(}", y=~"b|c"}`},
		`time() - max(a{b="c"}) and on (d) forgerun:e:rate5m offset 10m > 1e3`: {`a{b="c"}`, `forgerun:e:rate5m`},
		"a >= ignoring (state) group_left (x) b # the c of d\nunless f":        {"a", "b", "f"},
	} {
		require.Equal(t, want, selectorsOf(expr), expr)
	}
}

// prometheusServer is a Prometheus that scrapes the processes of a test.
type prometheusServer struct {
	t       *testing.T
	url     string
	targets map[string]*proc
	log     *output
}

func prometheusProgram(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("CI") == "true" {
			require.FailNow(t, "prometheus is not installed: scripts/setup.sh ci installs it")
		}
		t.Skip("prometheus is not installed: that the dashboards' metrics exist is not checked")
	}
	return path
}

// listening is what Prometheus logs with the port that it was given.
var listening = regexp.MustCompile(`msg="Listening on".* address=(\S+:\d+)`)

// startPrometheus starts a server with the rules as they are. It waits for
// scrapes as long as a busy machine takes.
func startPrometheus(t *testing.T, program string, targets map[string]*proc) *prometheusServer {
	t.Helper()
	folder, err := filepath.Abs(prometheusFolder)
	require.NoError(t, err)
	var config strings.Builder
	fmt.Fprintf(&config, "global: {scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 2s}\nrule_files: [%q, %q]\nscrape_configs:\n",
		filepath.Join(folder, "recording.yml"), filepath.Join(folder, "alerts.yml"))
	for job, process := range targets {
		fmt.Fprintf(&config, "- {job_name: %s, static_configs: [{targets: [%q]}]}\n", job, process.logged("admin listening")["address"])
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config.String()), 0o600))

	p := &prometheusServer{t: t, targets: targets, log: newOutput()}
	ctx, stop := context.WithCancel(context.Background())
	server := exec.CommandContext(ctx, program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0")
	server.Stdout, server.Stderr, server.SysProcAttr = p.log, p.log, dieWithTest()
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		stop()
		_ = server.Wait() // it was killed
		if t.Failed() {
			t.Logf("--- prometheus:\n%s", p.log.tail())
		}
	})
	p.eventually("prometheus says where it listens", func() bool {
		found := listening.FindStringSubmatch(p.log.String())
		if found != nil {
			p.url = "http://" + found[1]
		}
		return found != nil
	})
	p.eventually("prometheus is ready", func() bool {
		response, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	})
	return p
}

func (p *prometheusServer) eventually(what string, condition func() bool) {
	p.t.Helper()
	eventually(p.t, what, condition)
}

// get asks the HTTP API and gives the data of its answer.
func (p *prometheusServer) get(path string, data any) {
	p.t.Helper()
	response, err := http.Get(p.url + path)
	require.NoError(p.t, err)
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: data}
	require.NoError(p.t, json.NewDecoder(response.Body).Decode(&answer))
	require.Equal(p.t, "success", answer.Status, "%s: %s", path, answer.Error)
}

// query evaluates an expression now.
func (p *prometheusServer) query(expr string) []any {
	p.t.Helper()
	var data struct{ Result []any }
	p.get("/api/v1/query?query="+url.QueryEscape(expr), &data)
	return data.Result
}

// requireRulesAreHealthy checks that every rule has been evaluated without an
// error.
func (p *prometheusServer) requireRulesAreHealthy() {
	p.t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	p.get("/api/v1/rules", &data)
	require.NotEmpty(p.t, data.Groups)
	for _, group := range data.Groups {
		for _, rule := range group.Rules {
			require.Equal(p.t, "ok", rule.Health, "%s: %s", rule.Name, rule.LastError)
		}
	}
}
