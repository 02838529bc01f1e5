//go:build slow

package proxy_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
)

const twinSeeds = 20

// twin is a correct or a wrong client of an API. It submits three jobs and reads each until it is final.
type twin struct {
	*bench
	api   longRunning
	right bool
}

func (c *twin) run() {
	for n := range 3 {
		path := c.submit(n)
		for {
			a := c.patiently("GET", path, "")
			if a.text == c.api.done {
				break
			}
			c.pause(a, time.Second)
		}
	}
}

// submit creates a job and returns its path. The correct client retries with the key of the first try. If the API has no keys, it first
// checks whether the job exists: the one with the next number.
func (c *twin) submit(n int) (path string) {
	body := strings.Replace(c.api.body, "{", fmt.Sprintf(`{"n": %d, `, n), 1)
	body = strings.Replace(body, ", }", "}", 1)
	key := fmt.Sprint("key-", n)
	for try := 0; ; try++ {
		var headers []string
		if c.api.key != "" && c.right {
			headers = []string{c.api.key, key}
		}
		a := c.do(c.api.method, c.api.submit, body, headers...)
		if a.err == nil && a.StatusCode < 300 {
			made := a.text + a.Header.Get("Azure-AsyncOperation")
			for id := 1; ; id++ {
				if p := c.api.path(fmt.Sprint(id)); contains(made, p) {
					return p
				}
			}
		}
		c.pause(a, 100*time.Millisecond)
		if found := c.api.path(fmt.Sprint(n + 1)); c.right && c.api.key == "" && a.err != nil {
			if seen := c.patiently("GET", found, ""); seen.StatusCode < 300 {
				c.pause(seen, 0)
				return found
			}
		}
	}
}

// contains reports whether an answer names the job that is at a path.
func contains(answer, path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.Contains(answer, name+`"`) || strings.HasSuffix(answer, name)
}

// patiently repeats a request until it gets a useful answer.
func (c *twin) patiently(method, path, body string) answer {
	for {
		a := c.do(method, path, body)
		if a.err == nil && a.StatusCode < 500 && a.StatusCode != 429 {
			return a
		}
		c.pause(a, 100*time.Millisecond)
	}
}

// pause waits as long as an answer demands. The wrong client ignores that.
func (c *twin) pause(a answer, otherwise time.Duration) {
	if a.err == nil && c.right {
		if s, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil {
			otherwise = time.Duration(s) * time.Second
		}
	}
	if !c.right {
		otherwise = 20 * time.Millisecond
	}
	time.Sleep(otherwise)
}

// With any seed, the correct client is never blamed, and the wrong client always is.
func TestTwins(t *testing.T) {
	t.Parallel()
	expected := map[fault.Profile]string{
		fault.FlakyNetwork: "idempotency-key", fault.Overloaded: "backoff", fault.Failover: "idempotency-key",
	}
	var all sync.WaitGroup
	defer all.Wait()
	for _, name := range []string{"openai", "stripe", "google"} {
		for profile, rule := range expected {
			for seed := range twinSeeds {
				for _, right := range []bool{true, false} {
					all.Go(func() {
						t.Run(fmt.Sprintf("%s/%s/%d/%v", name, profile, seed, right), func(t *testing.T) {
							b := newBench(t, name, described[name].server())
							id := b.session(fmt.Sprintf(`{"profile": %q, "seed": %d}`, profile, seed))
							(&twin{b, described[name], right}).run()
							v, _ := b.verdict(id)
							var broken []string
							shown := b.own("GET", "sessions/"+id+"/verdict", "", 200)
							for _, r := range v.Results {
								if r.Status.Broken() {
									broken = append(broken, r.Rule)
								}
							}
							if right {
								require.Empty(t, broken, "%s", shown)
							} else {
								require.True(t, slices.Contains(broken, rule), "%s", shown)
							}
						})
					})
				}
			}
		}
	}
}
