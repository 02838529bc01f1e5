package job_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// The codes of section 14 with their statuses, then those added to them.
var statuses = map[job.Code]int{
	"RFA_REQUEST_MALFORMED":              400,
	"RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE": 415,
	"RFA_REQUEST_METHOD_NOT_ALLOWED":     405,
	"RFA_REQUEST_NOT_ACCEPTABLE":         406,
	"RFA_REQUEST_PAYLOAD_TOO_LARGE":      413,
	"RFA_JOB_VALIDATION_FAILED":          400,
	"RFA_AUTH_INVALID_CREDENTIALS":       401,
	"RFA_AUTH_TOKEN_EXPIRED":             401,
	"RFA_AUTH_FORBIDDEN":                 403,
	"RFA_AUTH_API_KEY_DISABLED":          403,
	"RFA_JOB_NOT_FOUND":                  404,
	"RFA_JOB_CONFLICT":                   409,
	"RFA_EXEC_IDEMPOTENCY_CONFLICT":      409,
	"RFA_REQUEST_RATE_LIMITED":           429,
	"RFA_INTERNAL":                       500,
	"RFA_STORAGE_DB_ERROR":               503,
	"RFA_STORAGE_UNAVAILABLE":            503,
	"RFA_EXEC_QUEUE_FULL":                503,
	"RFA_EXEC_WORKER_UNAVAILABLE":        503,
	"RFA_EXEC_TIMEOUT":                   504,
	"RFA_DEPENDENCY_TIMEOUT":             504,
	"RFA_CONFIG_INVALID":                 503,

	"RFA_REQUEST_NOT_FOUND":  404,
	"RFA_CLIENT_NOT_FOUND":   404,
	"RFA_WEBHOOK_NOT_FOUND":  404,
	"RFA_BATCH_NOT_FOUND":    404,
	"RFA_BULK_NOT_FOUND":     404,
	"RFA_SCHEDULE_NOT_FOUND": 404,
	"RFA_JOB_NOT_FINISHED":   404,
	"RFA_RESULT_NOT_FOUND":   404,
	"RFA_JOB_GONE":           410,
	"RFA_RESULT_GONE":        410,
}

var slugForm = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)

func TestCodes(t *testing.T) {
	t.Parallel()
	require.Len(t, statuses, 22+10)
	got := map[job.Code]int{}
	for _, s := range job.Codes {
		got[s.Code] = s.Status
		require.Equal(t, s, s.Code.Spec())
		require.NotEmpty(t, s.Title, s.Code)
		require.NotEmpty(t, s.Action, s.Code)
	}
	require.Equal(t, statuses, got)
	require.Len(t, job.Codes, len(statuses), "each once")
	require.Equal(t, job.CodeInternal.Spec(), job.Code("RFA_UNHEARD_OF").Spec())
}

// Codes and reasons share one space of problem types.
func TestProblemTypesAreUnique(t *testing.T) {
	t.Parallel()
	owners := map[string]string{}
	add := func(slug, owner string) {
		require.Regexp(t, slugForm, slug)
		require.Empty(t, owners[slug], "%s of %s is taken", slug, owner)
		owners[slug] = owner
	}
	for _, s := range job.Codes {
		add(s.Slug, string(s.Code))
	}
	for _, s := range job.Reasons {
		add(string(s.Reason), s.Title)
	}
}

func TestErrorText(t *testing.T) {
	t.Parallel()
	err := job.Errorf(job.CodeConflict, "the job is %s", job.Running)
	require.Equal(t, "the job is RUNNING", err.Detail)
	require.EqualError(t, err, "RFA_JOB_CONFLICT: the job is RUNNING")
	err.Cause = io.EOF
	require.EqualError(t, err, "RFA_JOB_CONFLICT: the job is RUNNING: EOF")
	require.ErrorIs(t, err, io.EOF)
}

func TestCodeOf(t *testing.T) {
	t.Parallel()
	inner := job.Errorf(job.CodeDBError, "")
	outer := &job.Error{Code: job.CodeTimeout, Cause: inner}
	require.Equal(t, job.CodeDBError, job.CodeOf(fmt.Errorf("saving: %w", inner)))
	require.Equal(t, job.CodeTimeout, job.CodeOf(outer), "the outermost counts")
	require.Equal(t, job.CodeTimeout, job.CodeOf(errors.Join(io.EOF, outer)))
	require.Equal(t, job.CodeInternal, job.CodeOf(io.EOF))
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	v := []job.Violation{{Pointer: "/type", Detail: "unknown"}, {Pointer: "", Detail: "odd"}}
	err := job.Invalid(v...)
	require.Equal(t, job.CodeValidationFailed, err.Code)
	require.NotEmpty(t, err.Detail)
	require.Equal(t, v, err.Violations)
}

func TestViolationsInJSON(t *testing.T) {
	t.Parallel()
	for text, v := range map[string]job.Violation{
		`{"pointer":"/type","detail":"a"}`:   {Pointer: "/type", Detail: "a"},
		`{"pointer":"","detail":"b"}`:        {Detail: "b"},
		`{"parameter":"limit","detail":"c"}`: {Parameter: "limit", Detail: "c"},
	} {
		got, err := json.Marshal([]job.Violation{v})
		require.NoError(t, err)
		require.Equal(t, "["+text+"]", string(got))
		var again job.Violation
		require.NoError(t, json.Unmarshal([]byte(text), &again))
		require.Equal(t, v, again)
	}
}
