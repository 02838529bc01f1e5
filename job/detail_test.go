package job_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestPlainText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                    "",
		"The job is é.":       "The job is é.",
		"a\x00b\nc\x1b[31md":  "a\uFFFDb\uFFFDc\uFFFD[31md",
		"a\u0085b\u202ec":     "a\uFFFDb\uFFFDc",
		"a\u2028b\u200bc\x7f": "a\uFFFDb\uFFFDc\uFFFD",
	} {
		require.Equal(t, want, job.PlainText(text, 100))
	}
	for limit := 3; limit < 12; limit++ {
		cut := job.PlainText("ééééééééé", limit)
		require.LessOrEqual(t, len(cut), limit)
		require.True(t, utf8.ValidString(cut), cut)
		require.True(t, strings.HasSuffix(cut, "..."), cut)
	}
}

func TestRefusalNamesTheFirstViolation(t *testing.T) {
	t.Parallel()
	kind := job.Violation{Pointer: "/work_kind", Detail: "No such kind."}
	whole := job.Violation{Detail: "The body must be an object."}
	limit := job.Violation{Parameter: "limit", Detail: "Must be a number."}
	values, form := "The request has invalid values.", "The body is not of the expected form."
	for want, err := range map[string]*job.Error{
		values:                                job.Invalid(),
		values + " /work_kind: No such kind.": job.Invalid(kind),
		values + " /work_kind: No such kind. One more is in violations.": job.Invalid(kind, whole),
		values + " limit: Must be a number. 2 more are in violations.":   job.Invalid(limit, kind, whole),
		values + " /a\uFFFDb: No.":                                       job.Invalid(job.Violation{Pointer: "/a\x1bb", Detail: "No."}),
		form + " The body must be an object.":                            job.Request{Malformed: true}.Refusal([]job.Violation{whole}),
	} {
		require.Equal(t, want, err.Detail)
	}
	long := job.Violation{Pointer: "/" + strings.Repeat("é", 1000), Detail: strings.Repeat("é", 2000)}
	detail := job.Invalid(long, kind, kind).Detail
	require.LessOrEqual(t, len(detail), job.MaxDetailBytes)
	require.True(t, utf8.ValidString(detail))
	require.True(t, strings.HasSuffix(detail, "2 more are in violations."))
}
