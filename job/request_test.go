package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func pointers(violations []job.Violation) []string {
	var list []string
	for _, v := range violations {
		list = append(list, v.Pointer)
	}
	return list
}

func TestCheck(t *testing.T) {
	t.Parallel()
	at := &requestedAt
	some := job.Catalogue{Types: []job.Type{job.Execute, job.EmitEvent}, Kinds: []job.Kind{job.SuccessFast, job.PayloadInvalid}}
	found := job.Violation{Pointer: "/callback", Detail: "found while decoding"}
	badTime := job.Violation{Pointer: "/execution_at", Detail: "found while decoding"}
	for name, c := range map[string]struct {
		catalogue job.Catalogue
		request   job.Request
		want      []string
	}{
		"plain":                 {fullCatalogue(), job.Request{Type: job.Execute}, nil},
		"plain, kind named":     {fullCatalogue(), job.Request{Type: job.Execute, WorkKind: job.RetryOnFail}, nil},
		"deferred":              {fullCatalogue(), job.Request{Type: job.Deferred, ExecutionAt: at}, nil},
		"event":                 {fullCatalogue(), job.Request{Type: job.EmitEvent, Emit: &job.Emission{Name: "x"}}, nil},
		"event without its own": {fullCatalogue(), job.Request{Type: job.EmitEvent}, nil},
		"allowed by some":       {some, job.Request{Type: job.Execute, WorkKind: job.SuccessFast}, nil},
		"type and kind off": {some, job.Request{Type: job.Deferred, ExecutionAt: at, WorkKind: job.CPUBurst},
			[]string{"/type", "/work_kind"}},
		"type off":                {some, job.Request{Type: job.Deferred, ExecutionAt: at}, []string{"/type"}},
		"kind off":                {some, job.Request{Type: job.Execute, WorkKind: job.RunsLong}, []string{"/work_kind"}},
		"always refused":          {fullCatalogue(), job.Request{Type: job.Execute, WorkKind: job.PayloadInvalid}, []string{"/work_kind"}},
		"refused though listed":   {some, job.Request{Type: job.Execute, WorkKind: job.PayloadInvalid}, []string{"/work_kind"}},
		"deferred without a time": {fullCatalogue(), job.Request{Type: job.Deferred}, []string{"/execution_at"}},
		"execute with a time":     {fullCatalogue(), job.Request{Type: job.Execute, ExecutionAt: at}, []string{"/execution_at"}},
		"event with a time":       {fullCatalogue(), job.Request{Type: job.EmitEvent, ExecutionAt: at}, []string{"/execution_at"}},
		"execute with an event":   {fullCatalogue(), job.Request{Type: job.Execute, Emit: &job.Emission{}}, []string{"/event"}},
		"deferred with an event":  {fullCatalogue(), job.Request{Type: job.Deferred, ExecutionAt: at, Emit: &job.Emission{}}, []string{"/event"}},
		"bad time found already": {fullCatalogue(), job.Request{Type: job.Deferred, Violations: []job.Violation{badTime}},
			[]string{"/execution_at"}},
		"all found are kept": {fullCatalogue(), job.Request{Type: job.Deferred, Violations: []job.Violation{found}},
			[]string{"/callback", "/execution_at"}},
		"unknown type and kind": { // were found while decoding
			fullCatalogue(),
			job.Request{Type: "DANCE", WorkKind: "TANGO", ExecutionAt: at, Emit: &job.Emission{}, Violations: []job.Violation{found}},
			[]string{"/callback"},
		},
		"everything": {
			some,
			job.Request{Type: job.Deferred, WorkKind: job.PayloadInvalid, Emit: &job.Emission{}},
			[]string{"/type", "/work_kind", "/execution_at", "/event"},
		},
	} {
		got := c.catalogue.Check(c.request)
		require.Equal(t, c.want, pointers(got), name)
		for _, v := range got {
			require.NotEmpty(t, v.Detail, name)
		}
		if name == "type and kind off" {
			require.Contains(t, got[0].Detail, "EXECUTE, EMIT_EVENT", "what is allowed")
			require.Contains(t, got[1].Detail, "SUCCESS_FAST, PAYLOAD_INVALID")
		}
	}
}

func TestCheckLeavesTheRequestAlone(t *testing.T) {
	t.Parallel()
	violations := make([]job.Violation, 1, 10)
	violations[0] = job.Violation{Pointer: "/callback"}
	r := job.Request{Type: job.Deferred, Violations: violations}
	require.Len(t, fullCatalogue().Check(r), 2)
	require.Len(t, fullCatalogue().Check(r), 2)
	require.Zero(t, violations[:2][1], "the decoder's list is not written to")
}

func TestTooLate(t *testing.T) {
	t.Parallel()
	now := requestedAt
	for offset, want := range map[time.Duration]bool{
		-time.Hour: true, -time.Second - time.Microsecond: true, -time.Second: false, 0: false, time.Hour: false,
	} {
		at := now.Add(offset)
		v, late := job.Request{Type: job.Deferred, ExecutionAt: &at}.TooLate(now)
		require.Equal(t, want, late, offset)
		if want {
			require.Equal(t, "/execution_at", v.Pointer)
			require.NotEmpty(t, v.Detail)
		} else {
			require.Zero(t, v)
		}
	}
	_, late := job.Request{Type: job.Execute}.TooLate(now)
	require.False(t, late)
	_, late = job.Request{Type: job.Execute, ExecutionAt: &time.Time{}}.TooLate(now)
	require.False(t, late, "Check refuses it already")
	_, late = job.Request{ExecutionAt: &time.Time{}}.TooLate(now)
	require.True(t, late, "whatever the type should have been")
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	many := make([]job.Violation, job.MaxViolations+5)
	values := job.Request{}.Refusal(many)
	require.Equal(t, job.CodeValidationFailed, values.Code)
	require.Len(t, values.Violations, job.MaxViolations)
	form := job.Request{Malformed: true}.Refusal(many[:2])
	require.Equal(t, job.CodeMalformed, form.Code)
	require.Len(t, form.Violations, 2)
	require.NotEqual(t, values.Detail, form.Detail)
}
