package proxy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
)

func TestRetryAfterIsSet(t *testing.T) {
	t.Parallel()
	target := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		if r.URL.Path == "/events" {
			events(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id": "1", "status": "done"}`))
	})
	for form, want := range map[fault.RetryAfter][]string{"": {"3"}, fault.AsMissing: nil, fault.AsTwoLines: {"3", "4"}} {
		for name, e := range map[string]fault.Effect{
			"unchanged": {}, "rewritten": {Extensions: true, Unfinished: true}, "refused": {Status: 429}, "a page": {HTML: true},
			"moved": {Moved: 307}, "cut": {Close: fault.CloseMidBody}, "a stream": {ExtraEvents: true},
		} {
			for _, version := range []string{"1.0", "1.1", "2"} {
				t.Run(fmt.Sprintf("%s/%s/%s", form, name, version), func(t *testing.T) {
					t.Parallel()
					b, e := newBench(t, "", target), e
					e.RetryAfter, e.RetryAfterAs = new(3), form
					b.faults(nth("GET /{any}", 1, e))
					path := "/x"
					if name == "a stream" {
						path = "/events"
					}
					require.Equal(t, want, b.headerBy(version, path)["Retry-After"])
				})
			}
		}
	}
}

func (b *bench) headerBy(version, path string) http.Header {
	b.t.Helper()
	if version == "2" {
		b.byHTTP2()
		a := b.do("GET", path, "")
		require.NotNil(b.t, a.Response, a.err)
		return a.Header
	}
	c := dial(b.t, b.url[len("http://"):])
	c.send("GET " + path + " HTTP/" + version + "\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	return http.Header(fields(c.until("\r\n\r\n")))
}

func TestSameRequest(t *testing.T) {
	t.Parallel()
	type request struct{ method, path, body, key string }
	for name, c := range map[string]struct {
		first, same, other request
	}{
		"reads": {
			request{"GET", "/operations/1", "", ""}, request{"GET", "/operations/1", "", ""}, request{"GET", "/operations/2", "", ""},
		},
		"bodies": {
			request{"POST", "/things", `{"a":1}`, ""}, request{"POST", "/things?try=2", `{"a":1}`, ""}, request{"POST", "/things", `{"a":2}`, ""},
		},
		"keys": {
			request{"POST", "/things", `{"a":1}`, "k"}, request{"POST", "/things", `{"a":3}`, "k"}, request{"POST", "/things", `{"a":1}`, "l"},
		},
		"key in the body": {
			request{"POST", "/things", `{"key":"k","n":1}`, ""}, request{"POST", "/things", `{"key":"k","n":2}`, ""},
			request{"POST", "/things", `{"key":"l","n":1}`, ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, `key: ["header:Idempotency-Key", /key]`, things(location))
			b.faults(fault.Rule{Match: fault.Match{Nth: 1, Times: 2, Same: true}, Effect: fault.Effect{Status: 503}})
			send := func(r request) int {
				var headers []string
				if r.key != "" {
					headers = []string{"Idempotency-Key", r.key}
				}
				a := b.do(r.method, r.path, r.body, headers...)
				require.NoError(t, a.err)
				if a.StatusCode == 202 && r.method == "POST" { // the request reached the target, although a rule had read its body
					require.JSONEq(t, accepted, a.text)
				}
				return a.StatusCode
			}
			require.Equal(t, 503, send(c.first))
			require.NotEqual(t, 503, send(c.other))
			require.Equal(t, 503, send(c.same))
			require.NotEqual(t, 503, send(c.same))
			var list struct {
				Data []fault.View `json:"data"`
			}
			require.NoError(t, json.Unmarshal(b.own("GET", "faults", "", 200), &list))
			require.EqualValues(t, 3, list.Data[0].Seen)
			require.EqualValues(t, 2, list.Data[0].Applied)
		})
	}
}

// A body that the proxy has read for a rule reaches the target completely.
func TestBodiesOfSameRequest(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 3 << 20} {
		b := newBench(t, "", things(location))
		b.faults(fault.Rule{Match: fault.Match{Nth: 9, Times: 2, Same: true}, Effect: fault.Effect{Status: 503}})
		body := string(make([]byte, size))
		for _, version := range []int{1, 2} {
			if version == 2 {
				b.byHTTP2()
			}
			a := b.do("POST", "/echo", body)
			require.NoError(t, a.err)
			require.Equal(t, version, a.ProtoMajor)
			require.True(t, a.text == body)
		}
	}
}
