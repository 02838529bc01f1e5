//go:build slow

package proxy_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/examples/other-apis/apis"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

var errGaveUp = errors.New("gave up")

// careful is a correct client. It obeys Retry-After up to 10 s. It has a time-out, a limit of tries, and one key per job.
type careful struct {
	*bench
	api vendor
}

const (
	longestWait = 10 * time.Second
	mostTries   = 5
)

func (c *careful) run() {
	for n := range 3 {
		made, err := c.ask(c.api.method, c.api.submit, c.api.bodyOf(n), fmt.Sprint("key-", n))
		if err != nil {
			continue
		}
		path := ""
		for id := 1; path == ""; id++ {
			if p := c.api.pathOf(id); contains(made.text, p) {
				path = p
			}
		}
		for {
			a, err := c.ask("GET", path, "", "")
			if err != nil || ended(a.text) {
				break
			}
			if wait := cmp.Or(waitOf(a.Header), time.Second); wait <= longestWait {
				time.Sleep(wait)
			} else {
				break
			}
		}
	}
}

func contains(response, path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.Contains(response, name+`"`) || strings.HasSuffix(response, name)
}

func ended(text string) bool {
	var d struct {
		Status any
		Done   bool
	}
	_ = json.Unmarshal([]byte(text), &d)
	for _, end := range []string{"completed", "failed", "expired", "cancelled", "canceled", "succeeded", "paid"} {
		if status, _ := d.Status.(string); strings.EqualFold(status, end) {
			return true
		}
	}
	return d.Done
}

func waitOf(h http.Header) time.Duration {
	seconds := wire.RetryAfter(h["Retry-After"], time.Now().Truncate(time.Second))
	if seconds == nil {
		return 0
	}
	return time.Duration(*seconds) * time.Second
}

func (c *careful) ask(method, path, body, key string) (response, error) {
	headers := []string{"Authorization", "Bearer k"}
	if key != "" && c.api.key != "" {
		headers = append(headers, c.api.key, key)
	}
	refused := 0
	for try := range mostTries {
		a := c.do(method, path, body, headers...)
		wait := 500 * time.Millisecond << try
		switch {
		case a.err != nil && method != "GET" && c.api.key == "":
			return a, errGaveUp // a repetition could create a second job
		case a.err != nil:
		case a.StatusCode < 300:
			return a, nil
		case a.StatusCode == 401:
			if refused++; refused > 1 {
				return a, errGaveUp
			}
		case a.StatusCode == 429, a.StatusCode >= 500, a.StatusCode == 403 && a.Header.Get("Retry-After") != "",
			a.StatusCode == 404 && method == "GET":
			if said := waitOf(a.Header); said > longestWait {
				return a, errGaveUp
			} else if wait < said {
				wait = said
			}
		default:
			return a, errGaveUp
		}
		time.Sleep(wait)
	}
	return response{}, errGaveUp
}

func TestCarefulClients(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, name := range []string{"openai", "stripe", "google"} {
		for _, profile := range fault.Profiles {
			if profile == fault.Failover && vendors[name].key == "" {
				continue // the client would give up at once, because connections are refused
			}
			for seed := range 6 {
				all.Go(func() {
					t.Run(fmt.Sprintf("%s/%s/%d", name, profile, seed), func(t *testing.T) {
						b := newBench(t, name, apis.Handler())
						id := b.session(fmt.Sprintf(`{"profile": %q, "seed": %d}`, profile, seed))
						client := plain(t)
						client.Timeout = 3 * time.Second
						(&careful{&bench{t, b.url, client}, vendors[name]}).run()
						v, _ := b.verdict(id)
						for _, r := range v.Results {
							if profile.MayGiveUp() && r.Rule == "outcome-learned" {
								continue
							}
							require.False(t, r.Status.Broken(), "%s: %+v", r.Rule, r.Evidence)
						}
					})
				})
			}
		}
	}
}
