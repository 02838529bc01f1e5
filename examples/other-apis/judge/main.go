// Judge runs each client of clients.json under each fault profile with three seeds. It prints the kept and broken rules as Markdown. Run
// it in examples/other-apis.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/forgerun/forgerun/examples/other-apis/apis"
	"github.com/forgerun/forgerun/verdict"
)

var profiles = []string{
	"flaky-network", "overloaded", "maintenance-window", "slow-everything", "failover", "odd-retry-after", "new-version", "credentials",
	"eventual", "stale-connections", "moved", "outage",
}

const seeds = 3

// client is a program that uses a library as its documentation does.
type client struct {
	Name    string   `json:"name"` // name of the library in its package registry
	API     string   `json:"api"`  // name of a built-in API description; empty: only rules from standards are judged
	Command []string `json:"command"`

	finished int // number of runs in which both jobs succeeded
	runs     int
	rules    map[string]*tally
}

// tally counts the runs of one client that kept or broke one rule.
type tally struct {
	kept, broken int
	first        string
	evidence     verdict.Evidence // from the first run that broke the rule
}

func main() {
	forgerun := flag.String("forgerun", "forgerun", "`path` of the forgerun program")
	parallel := flag.Int("parallel", 4, "`number` of runs at the same time")
	flag.Parse()
	if err := judge(*forgerun, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func judge(forgerun string, parallel int) error {
	text, err := os.ReadFile("clients.json")
	if err != nil {
		return err
	}
	var clients []*client
	if err := json.Unmarshal(text, &clients); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "judge")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var failed error
	var mu sync.Mutex
	var all sync.WaitGroup
	free := make(chan struct{}, parallel)
	for _, c := range clients {
		c.rules = map[string]*tally{}
		for n := range seeds * len(profiles) {
			free <- struct{}{}
			all.Go(func() {
				defer func() { <-free }()
				profile, seed := profiles[n%len(profiles)], n/len(profiles)+1
				v, finished, err := c.run(forgerun, profile, seed, filepath.Join(dir, fmt.Sprint(strings.ReplaceAll(c.Name, "/", "-"), n)))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed = fmt.Errorf("%s, %s, seed %d: %w", c.Name, profile, seed, err)
					return
				}
				c.add(v, finished, fmt.Sprintf("%s, seed %d", profile, seed))
			})
		}
	}
	all.Wait()
	if failed == nil {
		print(clients)
	}
	return failed
}

func (c *client) run(forgerun, profile string, seed int, file string) (v verdict.Verdict, finished bool, err error) {
	server := httptest.NewServer(apis.Handler())
	defer server.Close()
	arguments := []string{"verdict", "--target", server.URL, "--profile", profile, "--seed", fmt.Sprint(seed), "--json-file", file,
		"--time-limit", "3m"}
	if c.API != "" {
		arguments = append(arguments, "--api", c.API)
	}
	said, err := exec.Command(forgerun, slices.Concat(arguments, []string{"--"}, c.Command)...).CombinedOutput()
	text, readErr := os.ReadFile(file)
	if readErr != nil {
		return v, false, fmt.Errorf("%w: %s", cmp.Or(err, readErr), said)
	}
	var document struct {
		Sessions []verdict.Verdict
		Notes    []string
	}
	if err := json.Unmarshal(text, &document); err != nil || len(document.Sessions) != 1 {
		return v, false, fmt.Errorf("%s is not the verdict of one session: %w", file, err)
	}
	failed := slices.ContainsFunc(document.Notes, func(note string) bool { return strings.HasPrefix(note, "Your command failed") })
	return document.Sessions[0], !failed, nil
}

func (c *client) add(v verdict.Verdict, finished bool, run string) {
	c.runs++
	if finished {
		c.finished++
	}
	for _, r := range v.Results {
		t := c.rules[r.Rule]
		if t == nil {
			t = &tally{}
			c.rules[r.Rule] = t
		}
		switch r.Status {
		case verdict.OK:
			t.kept++
		case verdict.Warn, verdict.Fail:
			if t.broken++; t.first == "" || run < t.first {
				t.first, t.evidence = run, r.Evidence[0]
			}
		case verdict.NotTested:
		}
	}
}

func print(clients []*client) {
	var columns []string
	for _, id := range verdict.StandardIDs() {
		if slices.ContainsFunc(clients, func(c *client) bool { return c.rules[id] != nil && c.rules[id].kept+c.rules[id].broken > 0 }) {
			columns = append(columns, id)
		}
	}
	fmt.Printf("| client | version | both jobs done | %s |\n", strings.Join(columns, " | "))
	fmt.Printf("|---|---|---|%s\n", strings.Repeat("---|", len(columns)))
	for _, c := range clients {
		cells := []string{c.Name, version(c.Name), fmt.Sprintf("%d of %d", c.finished, c.runs)}
		for _, id := range columns {
			cells = append(cells, c.rules[id].cell())
		}
		fmt.Printf("| %s |\n", strings.Join(cells, " | "))
	}
	fmt.Println()
	for _, c := range clients {
		for _, id := range columns {
			if t := c.rules[id]; t.broken > 0 {
				fmt.Printf("- %s, `%s` (%s): %s\n", c.Name, id, t.first, sentence(t.evidence))
			}
		}
	}
}

func (t *tally) cell() string {
	switch {
	case t.broken > 0:
		return fmt.Sprintf("**breaks** %d of %d", t.broken, t.broken+t.kept)
	case t.kept > 0:
		return "keeps"
	}
	return ""
}

func sentence(e verdict.Evidence) string {
	text := ""
	if e.Before != nil {
		text = fmt.Sprintf("`%s`, response: %s. ", e.Before.Request, regexp.MustCompile("^none: .*").ReplaceAllString(e.Before.Answer, "none"))
	}
	return text + e.Found
}

func version(name string) string {
	module, _ := os.ReadFile("go/go.mod") // if the file is missing, no version is found
	if found := regexp.MustCompile(regexp.QuoteMeta(name) + ` v(\S+)`).FindSubmatch(module); found != nil {
		return string(found[1])
	}
	packages, _ := os.ReadFile("node/package.json")
	if found := regexp.MustCompile(`"` + regexp.QuoteMeta(name) + `": "([^"]+)"`).FindSubmatch(packages); found != nil {
		return string(found[1])
	}
	said, _ := exec.Command(name, "--version").Output()
	words := strings.Fields(string(said))
	return words[min(1, len(words)-1)]
}
