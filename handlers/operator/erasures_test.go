package operator_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestEraseAClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	target := "/admin/v1/clients/" + anID.String() + "/erase"
	for _, body := range []string{
		``, `{}`, `{"confirm":""}`, `{"confirm":"` + anID.String() + `","reason":"a\nb"}`,
		`{"confirm":"0190a1b2-c3d4-7000-8000-0000000000e1"}`,
		`{"confirm":"` + anID.String() + `","more":1}`,
		`{"confirm":"` + anID.String() + `","reason":"` + strings.Repeat("x", 1001) + `"}`,
	} {
		require.Equal(t, http.StatusBadRequest, w.send(changeToken, "POST", target, body).StatusCode, body)
	}
	require.Empty(t, w.store.done)
	r := w.send(changeToken, "POST", target, `{"confirm":"`+anID.String()+`","reason":"asked for"}`,
		"X-Request-Id", "0190a1b2-c3d4-7000-8000-000000000b01")
	require.Equal(t, http.StatusAccepted, r.StatusCode, r.text)
	require.Equal(t, "/admin/v1/erasures/"+anID.String(), r.Header.Get("Location"))
	require.JSONEq(t, `{"erasure_id":"`+anID.String()+`","client_id":"`+anID.String()+`","state":"RUNNING"}`, r.text)
	require.Equal(t, job.ErasureRequest{
		ClientID: anID, Operator: "ann", Reason: "asked for", RequestID: "0190a1b2-c3d4-7000-8000-000000000b01",
	}, w.store.erasure)
	require.JSONEq(t, `{"confirmed":true,"reason":"asked for"}`, string(w.store.entries[len(w.store.entries)-1].Detail))
	require.Equal(t, http.StatusNotFound, w.send(changeToken, "POST", "/admin/v1/clients/x/erase", `{}`).StatusCode)
}

// The hash is of the record as it stands in the answer.
func TestErasuresTellTheirProof(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var e struct {
		State string
		Proof struct {
			Remaining map[string]int
			Record    json.RawMessage
			SHA256    string `json:"sha256"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(w.get("/admin/v1/erasures/"+anID.String()).text), &e))
	require.Equal(t, "DONE", e.State)
	require.Len(t, e.Proof.Remaining, len(job.ErasedTables))
	sum := sha256.Sum256(e.Proof.Record)
	require.Equal(t, hex.EncodeToString(sum[:]), e.Proof.SHA256)

	w.store.nexts = []job.ID{anID}
	var page struct {
		Data []struct {
			State string
			Proof *struct{}
		}
		Page struct {
			Next string `json:"next_cursor"`
		}
	}
	require.NoError(t, json.Unmarshal([]byte(w.get("/admin/v1/erasures?limit=2").text), &page))
	require.Equal(t, "RUNNING", page.Data[0].State)
	require.Nil(t, page.Data[0].Proof)
	require.NotNil(t, page.Data[1].Proof)
	require.Equal(t, 2, w.store.erasuresLimit)
	require.Equal(t, http.StatusOK, w.get("/admin/v1/erasures?limit=2&cursor="+page.Page.Next).StatusCode)
	require.Equal(t, anID, w.store.erasuresAfter)
}
