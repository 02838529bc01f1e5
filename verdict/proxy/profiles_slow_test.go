//go:build slow

package proxy_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
)

// errGaveUp is returned by a client that gave up and told its user.
var errGaveUp = errors.New("gave up")

// careful is a correct client: it obeys Retry-After up to 10 s, and has a time-out, a limit of tries, and one key per job.
type careful struct {
	*bench
	api    longRunning
	client *http.Client
}

const (
	longestWait = 10 * time.Second
	mostTries   = 5
)

// run submits three jobs, and reads each until it is final or it gives up.
func (c *careful) run() {
	for n := range 3 {
		body := strings.Replace(strings.Replace(c.api.body, "{", fmt.Sprintf(`{"n": %d, `, n), 1), ", }", "}", 1)
		made, err := c.ask(c.api.method, c.api.submit, body, fmt.Sprint("key-", n))
		if err != nil {
			continue
		}
		path := ""
		for id := 1; path == ""; id++ {
			if p := c.api.path(fmt.Sprint(id)); contains(made.text+made.Header.Get("Azure-AsyncOperation"), p) {
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

// contains reports whether a response names the job at a path.
func contains(response, path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.Contains(response, name+`"`) || strings.HasSuffix(response, name)
}

// ended reports whether a document shows a final state. Unknown states are not final.
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

// waitOf reads Retry-After.
func waitOf(h http.Header) time.Duration {
	all := h.Values("Retry-After")
	if len(all) != 1 {
		return 0
	}
	if s, err := strconv.ParseUint(all[0], 10, 31); err == nil {
		return time.Duration(s) * time.Second
	}
	at, err := http.ParseTime(all[0])
	if err != nil {
		return 0
	}
	return max(0, time.Until(at)+time.Second)
}

// ask sends a request until it is answered.
func (c *careful) ask(method, path, body, key string) (response, error) {
	refused := 0
	for try := range mostTries {
		a := c.try(method, path, body, key)
		wait := 500 * time.Millisecond << try
		switch {
		case a.err != nil && method != "GET" && c.api.key == "":
			return a, errGaveUp // it may be done
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

func (c *careful) try(method, path, body, key string) response {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return response{err: err}
	}
	r.Header.Set("Authorization", "Bearer k")
	if key != "" && c.api.key != "" {
		r.Header.Set(c.api.key, key)
	}
	res, err := c.client.Do(r)
	if err != nil {
		return response{err: err}
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return response{res, string(text), err}
}

// A correct client is never blamed, with any profile and seed.
func TestCarefulClients(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	defer all.Wait()
	for _, name := range []string{"openai", "stripe", "google"} {
		for _, profile := range fault.Profiles {
			if profile == fault.Failover && described[name].key == "" {
				continue // would end at once, because connections are refused
			}
			for seed := range 6 {
				all.Go(func() {
					t.Run(fmt.Sprintf("%s/%s/%d", name, profile, seed), func(t *testing.T) {
						b := newBench(t, name, described[name].server())
						id := b.session(fmt.Sprintf(`{"profile": %q, "seed": %d}`, profile, seed))
						transport := &http.Transport{}
						t.Cleanup(transport.CloseIdleConnections)
						(&careful{b, described[name], &http.Client{Transport: transport}}).run()
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
