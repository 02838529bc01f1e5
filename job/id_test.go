package job_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

const idText = "01890a5d-ac96-774b-bcce-b302099a8057"

func TestParseID(t *testing.T) {
	t.Parallel()
	id := must(job.ParseID(idText))(t)
	require.Equal(t, job.ID{0x01, 0x89, 0x0a, 0x5d, 0xac, 0x96, 0x77, 0x4b, 0xbc, 0xce, 0xb3, 0x02, 0x09, 0x9a, 0x80, 0x57}, id)
	require.Equal(t, idText, id.String())
	require.False(t, id.IsZero())

	upper := must(job.ParseID(strings.ToUpper(idText)))(t)
	require.Equal(t, id, upper)

	zero := must(job.ParseID("00000000-0000-0000-0000-000000000000"))(t)
	require.True(t, zero.IsZero())
}

var badIDs = []string{
	"", "x", "null",
	strings.ReplaceAll(idText, "-", ""),
	"{" + idText + "}",
	"urn:uuid:" + idText,
	idText + " ", " " + idText, idText + "\x00", idText[:35], idText + "0", idText + "00",
	"01890a5dac96-774b-bcce-b302099a8057-",
	"01890a5d-ac96-774b-bcce_b302099a8057",
	"01890a5d-ac96-774b-bcceb-302099a8057",
	"g1890a5d-ac96-774b-bcce-b302099a8057",
	"+1890a5d-ac96-774b-bcce-b302099a8057",
	"01890a5d-ac96-774b-bcce-b302099a80é",
	"------------------------------------",
}

func TestParseIDRefuses(t *testing.T) {
	t.Parallel()
	for _, s := range badIDs {
		id, err := job.ParseID(s)
		require.ErrorIs(t, err, job.ErrBadID, "%q", s)
		require.True(t, id.IsZero(), "%q", s)
	}
}

func TestIDInJSON(t *testing.T) {
	t.Parallel()
	type doc struct {
		ID  job.ID            `json:"id"`
		Set map[job.ID]string `json:"set"`
	}
	var d doc
	text := `{"id":"` + idText + `","set":{"` + idText + `":"x"}}`
	require.NoError(t, json.Unmarshal([]byte(text), &d))
	back := must(json.Marshal(d))(t)
	require.JSONEq(t, text, string(back))

	kept := d.ID
	require.ErrorIs(t, d.ID.UnmarshalText([]byte("x")), job.ErrBadID)
	require.Equal(t, kept, d.ID, "a refused text changes nothing")
}

func FuzzParseID(f *testing.F) {
	f.Add(idText)
	f.Add(strings.ToUpper(idText))
	for _, s := range badIDs {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := job.ParseID(s)
		if err != nil {
			require.ErrorIs(t, err, job.ErrBadID)
			require.True(t, id.IsZero())
			return
		}
		require.Equal(t, strings.ToLower(s), id.String())
	})
}

// must gives the value of a call that has to succeed: must(f())(t).
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
