package handlers

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

	"github.com/forgerun/forgerun/handlers/decode"
	"github.com/forgerun/forgerun/job"
)

// FuzzDecodeSubmit sees that nothing makes the decoder panic, that a refusal
// says why, and that what is accepted keeps its meaning when it is written
// again, and its hash when its members are in another order.
func FuzzDecodeSubmit(f *testing.F) {
	for _, b := range badBodies {
		if len(b.body) < 10_000 {
			f.Add([]byte(b.body), "")
		}
	}
	f.Add([]byte(`{"type":"DEFERRED","work_kind":"SUCCESS_FAST","execution_at":"2030-01-31T12:00:00.123456789Z",`+
		`"callback":"https://example.com/x?y=1","params": {"a" : [1.50, "\\u0000"]} ,"auto_retry":true,"correlation_id":"a.B-c_1"}`), "k")
	f.Add([]byte(` { "type" : "EMIT_EVENT" , "event" : {"data":{"b":1e5,"a":"\ud83d\ude00"},"name":"order.paid"} ,`+
		` "idempotency_key":"\u0041" }`), "")
	f.Fuzz(func(t *testing.T, body []byte, key string) {
		if !decode.ValidKey(key) {
			key = ""
		}
		req, err := decode.Job(body, key, decode.Limits{MaxPayload: testPayload})
		if err != nil {
			var malformed *job.Error
			if !errors.As(err, &malformed) || malformed.Code != job.CodeMalformed || len(malformed.Violations) == 0 {
				t.Fatalf("%q is refused with %v", body, err)
			}
			return
		}
		if len(req.Violations) > 0 {
			return
		}
		requireSameAgain(t, req)
		reversed, err := decode.Job(reverseMembers(t, body), key, decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err)
		require.Equal(t, req.Hash, reversed.Hash)
		require.NotEqual(t, req.IdempotencyKey == "", req.Hash != [32]byte{})
	})
}

func FuzzDecodeBatch(f *testing.F) {
	for _, seed := range []string{
		items(), items(`{}`, `{"item_id":"a","type":"NOPE"}`), items(`null`), `{"jobs":[]}`, `{"jobs":{}}`, `{"jobs":[{"type":"EXECUTE"},`,
		items(`{"item_id":"0"}`), items(`{"type":"EMIT_EVENT","event":{"x":1}}`), `{"jobs":[{"type":1,"x":{"y":[]}}],"idempotency_key":"k"}`,
	} {
		f.Add([]byte(seed))
	}
	for _, bad := range badBodies {
		f.Add([]byte(items(bad.body)))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := decode.Batch(body, "key", decode.Limits{MaxPayload: testPayload})
		if err != nil {
			var refused *job.Error
			require.ErrorAs(t, err, &refused)
			require.NotEmpty(t, refused.Violations)
			require.Equal(t, 400, refused.Code.Spec().Status)
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
		again, err := decode.Batch(reverseMembers(t, body), "key", decode.Limits{MaxPayload: testPayload})
		require.NoError(t, err)
		require.Equal(t, req.Hash, again.Hash)
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
	again, err := decode.Job([]byte(body.String()), "", decode.Limits{MaxPayload: testPayload})
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
