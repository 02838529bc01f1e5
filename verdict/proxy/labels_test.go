package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

const sessionHeader = "ForgeRun-Session"

func (b *bench) labeled(name string) (n verdict.Session) {
	b.t.Helper()
	var list struct{ Data []verdict.Session }
	require.NoError(b.t, json.Unmarshal(b.own("GET", "sessions?label="+url.QueryEscape(name), "", 200), &list))
	require.Len(b.t, list.Data, 1)
	return list.Data[0]
}

// Concurrent tests have separate sessions, rule counts and verdicts. The target does not see the session header.
func TestLabels(t *testing.T) {
	t.Parallel()
	target := things(location)
	b := newBench(t, "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(sessionHeader) != "" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		target.ServeHTTP(w, r)
	}))
	b.client.Transport.(*http.Transport).DisableKeepAlives = true // net/http may itself resend a request with a key
	b.faults(nth("", 1, fault.Effect{Close: fault.AfterCommit}))
	main := b.session(`{"rules": ["idempotency-key"]}`)
	var tests sync.WaitGroup
	for n := range 6 {
		tests.Go(func() {
			name, key := fmt.Sprint("test ", n), []string{"Idempotency-Key", fmt.Sprint("k", n)}
			if n%2 == 1 {
				key = []string{"X-Test", "forgets its key"}
			}
			key = append(key, sessionHeader, name)
			for range 2 { // the first response is lost
				b.do("POST", "/things", fmt.Sprintf(`{"n": %d}`, n), key...)
			}
		})
	}
	tests.Wait()
	require.Equal(t, http.StatusBadRequest, b.do("GET", "/echo", "", sessionHeader, strings.Repeat("l", 201)).StatusCode)
	v, _ := b.verdict(main)
	require.Zero(t, v.Recorded)
	for n := range 6 {
		session := b.labeled(fmt.Sprint("test ", n))
		require.NotNil(t, session.EndedAt)
		require.Equal(t, 2, session.Recorded)
		v, results := b.verdict(session.ID)
		require.Equal(t, map[bool]verdict.Status{true: verdict.OK, false: verdict.Warn}[n%2 == 0], results["idempotency-key"].Status, v.Label)
	}
	require.Error(t, b.do("DELETE", "/things", "", sessionHeader, "x").err, "without an open session, the rules of the proxy apply")
	require.Contains(t, string(b.own("GET", "sessions?label=x", "", 200)), `"data":[]`)
}

// A delivery belongs to the session of its job, and the rules of that session apply to it.
func TestLabelsOfDeliveries(t *testing.T) {
	t.Parallel()
	p := newProxy(t, serverOf(t, things(location)), "")
	receiver := serverOf(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	hook := &bench{t, serverOf(t, p.Hook(must(url.Parse(receiver)), "")), plain(t)}
	b := benchAt(t, listen(t, p))
	main := b.session(`{"rules": ["deliveries-answered"]}`)
	job := b.do("POST", "/things", `{}`, sessionHeader, "a").Header.Get("Location")
	path := must(url.Parse(job)).Path
	a1 := b.do("PUT", "/-/forgerun/v1/testbed/faults", `[{"match": {"operation": "delivery"}, "effect": {"drop": true}}]`,
		sessionHeader, "a", "Content-Type", "application/json")
	require.Equal(t, 200, a1.StatusCode, a1.text)
	send := func(body string) error { return hook.do("POST", "/", body, "Content-Type", "application/json").err }
	require.Error(t, send(fmt.Sprintf(`{"id": %q, "status": "Succeeded"}`, path)), "dropped")
	require.NoError(t, send(`{"id": "another", "status": "Succeeded"}`))
	v, _ := b.verdict(main)
	require.Equal(t, 1, v.Recorded)
	require.Equal(t, verdict.Passed, v.Verdict)
	require.Equal(t, 3, b.labeled("a").Recorded, "the submission, the delivery, and the dropped request")
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
