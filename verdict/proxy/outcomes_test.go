package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
)

const orders = `
submit: ["POST /v1/{shop}/orders"]
read: ["GET /v1/{shop}/orders/{id}"]
job: {id: [/order/id], state: [/order/phase], final: [shipped]}
rules: [outcome-learned, stop-at-end, one-job-per-intention, lost-answer]
reset: [POST /tests/reset]
`

// shop is an API that names its orders only by id. The first order is shipped from read number `shipped` on.
func shop(shipped int32) http.Handler {
	var made, reads atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
			_, _ = fmt.Fprintf(w, `{"order": {"id": "o %d", "phase": "new"}}`, made.Add(1))
		case r.URL.Path != "/v1/north/orders/o 1" || r.Header.Get("Authorization") == "":
			w.WriteHeader(http.StatusNotFound)
		default:
			phase := "new"
			if reads.Add(1) >= shipped {
				phase = "shipped"
			}
			_, _ = io.WriteString(w, `{"order": {"id": "o 1", "phase": "`+phase+`"}}`)
		}
	})
}

// The proxy reads unfinished jobs at the end of the session, even if the target returned an id but no address. So it can blame a client
// that misses the end of a job.
func TestJobsAreReadAtTheEnd(t *testing.T) {
	t.Parallel()
	for reads, statuses := range map[int][2]verdict.Status{
		0: {verdict.Warn, verdict.NotTested}, 1: {verdict.OK, verdict.Warn}, 2: {verdict.OK, verdict.OK},
	} {
		for i, status := range statuses {
			b := newBench(t, orders, shop(int32(i+1)))
			id := b.session("")
			require.NoError(t, b.do("POST", "/v1/north/orders", `{}`, "Authorization", "Bearer x").err)
			for range reads {
				require.NoError(t, b.do("GET", "/v1/north/orders/o%201", "", "Authorization", "Bearer x").err)
			}
			_, rules := b.verdict(id)
			require.Equal(t, status, rules["outcome-learned"].Status, "%d reads of an order that is shipped at read %d", reads, i+1)
		}
	}
}

// If no state is known to be final, the verdict says which states it saw and how to name the final ones.
func TestStatesAreListed(t *testing.T) {
	t.Parallel()
	const end = "; none is known as final: if one is, describe the API (--api FILE with job: {final: [...]})"
	long := strings.Repeat("x", 1_000)
	for name, c := range map[string]struct {
		description, want string
		states            []string
	}{
		"unknown final state": {"", `states seen: "working", "ready"` + end, []string{"working", "working", "ready"}},
		"many states":         {"", `states seen: "2", "3", "4", "1", "5"` + end, []string{"0", "1", "2", "3", "4", "1", "5"}},
		"odd states":          {"", `states seen: "` + long[:40] + `...", "a\n\u202eb"` + end, []string{long, `a\n\u202eb`}},
		"described":           {"job: {final: [ready]}", "", []string{"working", "ready"}},
		"known":               {"", "", []string{"working", "done"}},
		"no state":            {"", "no job ended", []string{""}},
	} {
		reads := 0
		b := newBench(t, c.description, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodPost {
				w.Header().Set("Location", "/exports/1")
				w.WriteHeader(http.StatusAccepted)
				return
			}
			_, _ = fmt.Fprintf(w, `{"status": "%s"}`, c.states[min(reads, len(c.states)-1)])
			reads++
		}))
		id := b.session(`{"rules": ["outcome-learned", "stop-at-end"]}`)
		require.NoError(t, b.do("POST", "/exports", `{}`).err)
		for range c.states {
			require.NoError(t, b.do("GET", "/exports/1", "").err)
		}
		_, rules := b.verdict(id)
		require.Equal(t, c.want, rules["outcome-learned"].Reason, name)
		if strings.Contains(c.want, "seen") {
			require.Equal(t, c.want, rules["stop-at-end"].Reason, name)
		}
	}
}

func TestReadPath(t *testing.T) {
	t.Parallel()
	for description, want := range map[string]string{
		`{submit: [POST /v1/orders], read: ["GET /v1/orders/{id}"]}`:                                         "/v1/orders/a%2Fb",
		`{submit: [POST /v1/orders], read: ["GET /v1/{id...}"]}`:                                             "/v1/a/b",
		`{submit: ["POST /{v}/orders"], read: ["GET /{v}/orders/{id}:state"]}`:                               "/v1/orders/a%2Fb:state",
		`{submit: [POST /v1/orders], read: ["GET /v1/{shop}/{id}", "HEAD /v1/{id}", "GET /v1/states/{id}"]}`: "/v1/states/a%2Fb",
		`{submit: [POST /v1/orders], read: [GET /v1/orders]}`:                                                "",
		`{submit: [POST /v1/orders]}`:                                                                        "",
	} {
		a, err := api.Parse([]byte(description))
		require.NoError(t, err)
		require.Equal(t, want, a.ReadPath("/v1/orders", "a/b"), description)
	}
}

// A client need not read a job if the target may notify it outside the proxy.
func TestClientsMayBeNotifiedElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, body, query, header string
		notified                  bool
	}{
		"callback": {"/v1/north/orders", `{"callback_url": "http://127.0.0.1:4000/c"}`, "", "", true},
		"callback in a member": {"/v1/north/orders", `{"notify": {"url": "https://example.com"}, "notifications": ["https://example.com"]}`,
			"", "", true},
		"callback in the query":  {"/v1/north/orders", `{}`, "?webhook=http://127.0.0.1:4000/c", "", true},
		"callback in a header":   {"/v1/north/orders", `{}`, "", "http://127.0.0.1:4000/c", true},
		"webhook":                {"/webhooks", `{"url": "http://127.0.0.1:4000/c"}`, "", "", true},
		"operation on many jobs": {"/v1/bulk", `{"action": "cancel"}`, "", "", true},
		"another address":        {"/v1/north/orders", `{"image": "https://example.com/a.png", "callback": false}`, "", "", false},
	} {
		b := newBench(t, orders, shop(1))
		id := b.session("")
		require.NoError(t, b.do("POST", "/v1/north/orders", `{"n": 1}`, "Authorization", "Bearer x").err)
		require.NoError(t, b.do("POST", c.path+c.query, c.body, "Content-Type", "application/json", "X-Callback-Url", c.header).err)
		_, rules := b.verdict(id)
		want := map[bool]verdict.Status{true: verdict.NotTested, false: verdict.Warn}[c.notified]
		require.Equal(t, want, rules["outcome-learned"].Status, name)
	}
}
