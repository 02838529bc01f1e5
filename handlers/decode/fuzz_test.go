package decode

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// seeds gives the bodies of a table that are not endless.
func seeds(tables map[job.Code]map[string]string) (bodies []string) {
	for _, table := range tables {
		for body := range table {
			if len(body) < 10_000 {
				bodies = append(bodies, body)
			}
		}
	}
	return bodies
}

// FuzzDecode sees that nothing makes a decoder panic, that a refusal says why, and that what is accepted keeps its hash
// when its members are in another order.
func FuzzDecode(f *testing.F) {
	for _, body := range append(append(seeds(badBodies), seeds(badWebhooks)...),
		`{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2030-01-31T12:00:00.123456789Z",`+
			`"callback":"https://example.com/x?y=1","params": {"a" : [1.50, "\\u0000"]} ,"auto_retry":true,"correlation_id":"a.B-c_1"}`,
		` { "type" : "EMIT_EVENT" , "event" : {"data":{"b":1e5,"a":"\ud83d\ude00"},"name":"order.paid"} , "idempotency_key":"key" }`,
		hook(`,"description":"ä","content_mode":"structured","idempotency_key":"key"`), `{"enabled":true}`, `{"enabled":null}`,
		`{"since":"2030-01-31T12:00:00Z","cursor":"AAAA"}`, `{"item_id":"a","type":"NOPE"}`) {
		f.Add([]byte(body))
		f.Add([]byte(items(body)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, read := range []func(body []byte) (hash [32]byte, violations []job.Violation, err error){
			func(body []byte) ([32]byte, []job.Violation, error) {
				r, err := Job(body, "key", limits)
				return r.Hash, r.Violations, err
			},
			func(body []byte) ([32]byte, []job.Violation, error) {
				r, err := Batch(body, "key", limits)
				var all []job.Violation
				ids := map[string]bool{}
				for _, item := range r.Items {
					all = append(all, item.Request.Violations...)
					ids[item.ItemID] = true
					require.True(t, item.Request.Type.Valid() || len(item.Request.Violations) > 0)
				}
				require.Len(t, ids, len(r.Items))
				return r.Hash, all, err
			},
			func(body []byte) ([32]byte, []job.Violation, error) {
				r, err := Webhook(body, "key")
				return r.Hash, r.Violations, err
			},
			func(body []byte) ([32]byte, []job.Violation, error) {
				p, err := WebhookPatch(body)
				return [32]byte{}, p.Violations, err
			},
			func(body []byte) ([32]byte, []job.Violation, error) {
				_, _, err := Since(body)
				return [32]byte{}, nil, err
			},
		} {
			hash, violations, err := read(body)
			if err != nil {
				var refused *job.Error
				require.ErrorAs(t, err, &refused)
				require.NotEmpty(t, refused.Violations)
				require.Equal(t, 400, refused.Code.Spec().Status)
				continue
			}
			for _, v := range violations {
				require.True(t, v.Pointer == "" || strings.HasPrefix(v.Pointer, "/"), v.Pointer)
			}
			if len(violations) == 0 {
				again, _, err := read(reverseMembers(t, body))
				require.NoError(t, err)
				require.Equal(t, hash, again)
			}
		}
	})
}

// reverseMembers writes the members of all objects in the opposite order, and
// with other white space.
func reverseMembers(t *testing.T, text []byte) []byte {
	t.Helper()
	d := jsontext.NewDecoder(strings.NewReader(string(text)))
	var value func() string
	value = func() string {
		kind := d.PeekKind()
		if kind != '{' && kind != '[' {
			v, err := d.ReadValue()
			require.NoError(t, err)
			return string(v)
		}
		_, err := d.ReadToken()
		require.NoError(t, err)
		var parts []string
		for d.PeekKind() != '}' && d.PeekKind() != ']' {
			part := value()
			if kind == '{' {
				part += " :\t" + value()
			}
			parts = append(parts, part)
		}
		_, err = d.ReadToken()
		require.NoError(t, err)
		if kind == '[' {
			return "[" + strings.Join(parts, ", ") + " ]"
		}
		slices.Reverse(parts)
		return "{ " + strings.Join(parts, " ,\n") + "}"
	}
	return []byte(value())
}
