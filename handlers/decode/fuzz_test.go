package decode

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
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

// requireRefusal holds an error against what every refusal says.
func requireRefusal(t *testing.T, err error) {
	t.Helper()
	var refused *job.Error
	require.True(t, errors.As(err, &refused), err)
	require.NotEmpty(t, refused.Violations)
	require.Equal(t, 400, refused.Code.Spec().Status)
}

// FuzzDecodeSubmit sees that nothing makes the decoder panic, that a refusal
// says why, and that what is accepted keeps its meaning when it is written
// again, and its hash when its members are in another order.
func FuzzDecodeSubmit(f *testing.F) {
	for _, body := range append(seeds(badBodies),
		`{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2030-01-31T12:00:00.123456789Z",`+
			`"callback":"https://example.com/x?y=1","params": {"a" : [1.50, "\\u0000"]} ,"auto_retry":true,"correlation_id":"a.B-c_1"}`,
		` { "type" : "EMIT_EVENT" , "event" : {"data":{"b":1e5,"a":"\ud83d\ude00"},"name":"order.paid"} , "idempotency_key":"\u0041" }`) {
		f.Add([]byte(body), "")
		f.Add([]byte(body), "k")
	}
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		if !ValidKey(key) {
			key = ""
		}
		req, err := Job(body, key, limits)
		if err != nil {
			requireRefusal(t, err)
			return
		}
		if len(req.Violations) > 0 {
			return
		}
		if req.Retry == nil {
			requireSameAgain(t, req)
		}
		reversed, err := Job(reverseMembers(t, body), key, limits)
		require.NoError(t, err)
		require.Equal(t, req.Hash, reversed.Hash)
		require.NotEqual(t, req.IdempotencyKey == "", req.Hash != [32]byte{})
	})
}

func FuzzDecodeBatch(f *testing.F) {
	for _, body := range append(seeds(badBodies), `{"item_id":"a","type":"NOPE"}`, `{"item_id":"0"}`, `{"type":1,"x":{"y":[]}}`) {
		f.Add([]byte(items(body)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := Batch(body, "key", limits)
		if err != nil {
			requireRefusal(t, err)
			return
		}
		require.NotEmpty(t, req.Items)
		require.LessOrEqual(t, len(req.Items), job.MaxBatchItems)
		require.NotZero(t, req.Hash)
		ids := map[string]bool{}
		for _, item := range req.Items {
			require.Regexp(t, `^[A-Za-z0-9._-]{1,128}$`, item.ItemID)
			require.False(t, ids[item.ItemID])
			ids[item.ItemID] = true
			require.Empty(t, item.Request.IdempotencyKey)
			require.True(t, item.Request.Type.Valid() || len(item.Request.Violations) > 0)
			require.True(t, !item.Request.Malformed || len(item.Request.Violations) > 0)
			for _, v := range item.Request.Violations {
				require.True(t, v.Pointer == "" || strings.HasPrefix(v.Pointer, "/"), v.Pointer)
			}
		}
		again, err := Batch(reverseMembers(t, body), "key", limits)
		require.NoError(t, err)
		require.Equal(t, req.Hash, again.Hash)
	})
}

// FuzzDecodeWebhook sees the same of webhooks, and that what is accepted holds the rules.
func FuzzDecodeWebhook(f *testing.F) {
	for _, body := range append(seeds(badWebhooks), hook(`,"description":"ä","content_mode":"structured","idempotency_key":"k"`),
		`{"enabled":true}`, `{"enabled":null}`, `{"since":"2030-01-31T12:00:00Z","cursor":"AAAA"}`) {
		f.Add([]byte(body))
	}
	requireGood := func(t *testing.T, url *string, events []string, mode job.ContentMode) {
		require.True(t, mode == "" || mode.Valid())
		require.LessOrEqual(t, len(events), 20)
		for i, name := range events {
			require.True(t, job.Subscribable(name))
			require.Equal(t, i, slices.Index(events, name))
		}
		if url != nil {
			require.Empty(t, checkURL(*url))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if r, err := Webhook(body, "key"); err != nil {
			requireRefusal(t, err)
		} else if len(r.Violations) == 0 {
			requireGood(t, &r.URL, r.Events, r.ContentMode)
			require.NotEmpty(t, r.Events)
			require.NotZero(t, r.Hash)
			again, err := Webhook(reverseMembers(t, body), "key")
			require.NoError(t, err)
			require.Equal(t, r, again)
		}
		if p, err := WebhookPatch(body); err != nil {
			requireRefusal(t, err)
		} else if len(p.Violations) == 0 {
			require.True(t, p.URL != nil || p.Events != nil || p.Description != nil || p.ContentMode != nil || p.Enabled != nil)
			var mode job.ContentMode
			if p.ContentMode != nil {
				mode = *p.ContentMode
				require.NotEmpty(t, mode)
			}
			requireGood(t, p.URL, p.Events, mode)
		}
		if since, _, err := Since(body); err != nil {
			requireRefusal(t, err)
		} else {
			require.Equal(t, time.UTC, since.Location())
		}
	})
}

// requireSameAgain writes the request as a body and decodes that.
func requireSameAgain(t *testing.T, req job.Request) {
	t.Helper()
	members := map[string]any{"type": req.Type, "auto_retry": req.AutoRetry}
	for name, value := range map[string]string{
		"work_kind": string(req.WorkKind), "callback": req.Callback, "idempotency_key": req.IdempotencyKey, "correlation_id": req.CorrelationID,
	} {
		if value != "" {
			members[name] = value
		}
	}
	if req.ExecutionAt != nil {
		members["execution_at"] = req.ExecutionAt.Format(time.RFC3339Nano)
	}
	var body strings.Builder
	body.WriteString("{")
	if req.Params != nil {
		body.WriteString(`"params":` + string(req.Params) + ",")
	}
	if req.Emit != nil {
		body.WriteString(`"event":{"name":"` + req.Emit.Name + `"`)
		if req.Emit.Data != nil {
			body.WriteString(`,"data":` + string(req.Emit.Data))
		}
		body.WriteString("},")
	}
	rest, err := json.Marshal(members)
	require.NoError(t, err)
	body.Write(rest[1:])
	again, err := Job([]byte(body.String()), "", limits)
	require.NoError(t, err, body.String())
	again.Hash, req.Hash = [32]byte{}, [32]byte{}
	require.Empty(t, cmp.Diff(req, again))
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
