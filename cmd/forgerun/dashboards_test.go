package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const prometheusFolder = "../../monitoring/prometheus"

// allQueries returns the queries of rules, alerts and dashboards. Grafana's variables $job and $instance become .*, which matches all.
func allQueries(t *testing.T) []string {
	t.Helper()
	queries := slices.Concat(queriesIn(t, prometheusFolder+"/recording.yml", "expr"), queriesIn(t, prometheusFolder+"/alerts.yml", "expr"),
		queriesIn(t, chart+"values.yaml", "query"), runbookBlocks(t, "promql"))
	dashboards, err := filepath.Glob("../../monitoring/grafana/dashboards/*.json")
	require.NoError(t, err)
	require.Len(t, dashboards, 3)
	fill := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	for _, path := range dashboards {
		for _, query := range queriesIn(t, path, "expr") {
			queries = append(queries, fill.Replace(query))
		}
	}
	return queries
}

func queriesIn(t *testing.T, path, name string) (queries []string) {
	t.Helper()
	var file any
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, path)), &file))
	var walk func(node any)
	walk = func(node any) {
		switch n := node.(type) {
		case map[string]any:
			if query, ok := n[name].(string); ok {
				queries = append(queries, query)
			}
			for _, member := range n {
				walk(member)
			}
		case []any:
			for _, item := range n {
				walk(item)
			}
		}
	}
	walk(file)
	require.NotEmpty(t, queries, path)
	return queries
}

var absentWhenHealthy = []string{`http_requests_total{code=~"5.."}`, `http_requests_total{code=~"5..", code!="501"}`,
	`http_requests_total{code="429"}`, `jobs_failed_total{error_code="RFA_INTERNAL", work_kind!~"FAIL_IMMEDIATE|FAIL_AFTER_PROGRESS"}`}

// Every metric and label in dashboards, rules, the runbook and autoscalers exists. The runbook's SQL and Redis commands work.
func TestDashboardsAndRulesUseMetricsThatExist(t *testing.T) {
	s := newStack(t, hooks)
	processes := []*proc{s.startLeader(), s.startWorker(), s.startDeliverer()}
	s.newUser(processes[0]) // HTTP metrics exist only after a request; all other series exist from the start
	s.requireRunbook()
	recorded := regexp.MustCompile(`record: (\S+)`).FindAllStringSubmatch(readText(t, filepath.Join(prometheusFolder, "recording.yml")), -1)
	elsewhere := []string{"ALERTS", "up", "scrape_duration_seconds"} // metrics of Prometheus itself
	for _, rule := range recorded {
		elsewhere = append(elsewhere, rule[1])
	}
	queries := allQueries(t)
	selectors := map[string]bool{}
	for _, q := range queries {
		found := selectorsOf(q)
		require.NotEmpty(t, found, "no metric in %s", q)
		for _, selector := range found {
			selectors[selector] = true
		}
	}
	maps.DeleteFunc(selectors, func(selector string, _ bool) bool {
		name, _, _ := strings.Cut(selector, "{")
		return slices.Contains(elsewhere, name) || slices.Contains(absentWhenHealthy, selector)
	})
	t.Cleanup(func() { require.Empty(t, selectors, "without a series") })
	eventually(t, "a series for each selector", func() bool {
		for _, p := range processes {
			families := p.scrape()
			maps.DeleteFunc(selectors, func(selector string, _ bool) bool { return selects(selector, families) })
		}
		return len(selectors) == 0
	})
	requirePromQL(t, queries)
}

var matcher = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)

// selects reports whether a selector matches a series of a scrape. It ignores the labels that Prometheus adds.
func selects(selector string, families map[string]*dto.MetricFamily) bool {
	name, labels, _ := strings.Cut(selector, "{")
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		for _, series := range families[strings.TrimSuffix(name, suffix)].GetMetric() {
			has := map[string]string{}
			for _, l := range series.Label {
				has[l.GetName()] = l.GetValue()
			}
			if !slices.ContainsFunc(matcher.FindAllStringSubmatch(labels, -1), func(m []string) bool {
				if slices.Contains([]string{"job", "instance", "le"}, m[1]) {
					return false
				}
				value, known := has[m[1]]
				is := value == m[3]
				if strings.Contains(m[2], "~") {
					is = regexp.MustCompile("^(?:" + strings.ReplaceAll(m[3], `\\`, `\`) + ")$").MatchString(value)
				}
				return !known || is == strings.HasPrefix(m[2], "!")
			}) {
				return true
			}
		}
	}
	return false
}

func requirePromQL(t *testing.T, queries []string) {
	t.Helper()
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		require.NotEqual(t, "true", os.Getenv("CI"), "scripts/setup.sh ci installs promtool")
		return
	}
	file := "groups: [{name: queries, rules: ["
	for i, q := range queries {
		file += fmt.Sprintf("{record: query%d, expr: %q},\n", i, q)
	}
	path := filepath.Join(t.TempDir(), "queries.yml")
	require.NoError(t, os.WriteFile(path, []byte(file+"]}]"), 0o600))
	runIn(t, ".", nil, promtool, "check", "rules", "--lint=none", path)
}

var (
	quoted   = `"(?:[^"\\]|\\.)*"`
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	ranges   = regexp.MustCompile(`\[[^\]]*\]`)
	comments = regexp.MustCompile(`#[^\n]*`)
	selector = regexp.MustCompile(`[a-zA-Z_][\w:]*(?:\{(?:[^"}]|` + quoted + `)*\}|\s*\()?`)
	keywords = []string{"and", "or", "unless", "bool", "offset"}
)

func (s *stack) requireRunbook() {
	s.t.Helper()
	statements, commands := runbookBlocks(s.t, "sql"), runbookBlocks(s.t, "redis")
	require.NotEmpty(s.t, statements)
	require.NotEmpty(s.t, commands)
	for _, statement := range statements {
		_, err := s.db.Exec(s.ctx(), "EXPLAIN "+statement)
		require.NoError(s.t, err, statement)
	}
	for _, command := range commands {
		var args []any
		for word := range strings.FieldsSeq(command) {
			args = append(args, word)
		}
		_, err := s.rdb.Do(s.ctx(), args...).Result()
		require.True(s.t, err == nil || err.Error() == "redis: nil", "%s: %v", command, err)
	}
}

func runbookBlocks(t *testing.T, language string) (lines []string) {
	t.Helper()
	page := readText(t, "../../docs/how-to/runbook.md")
	for _, block := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(page, -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	return lines
}

func selectorsOf(expr string) (found []string) {
	expr = comments.ReplaceAllString(expr, "")
	expr = ranges.ReplaceAllString(grouping.ReplaceAllString(expr, ""), "")
	for _, at := range selector.FindAllStringIndex(expr, -1) {
		name := expr[at[0]:at[1]]
		partOfANumber := at[0] > 0 && strings.ContainsAny(expr[at[0]-1:at[0]], "0123456789.") // the match is the unit of a number, as in 10m
		if !strings.HasSuffix(name, "(") && !slices.Contains(keywords, name) && !partOfANumber {
			found = append(found, name)
		}
	}
	return found
}
