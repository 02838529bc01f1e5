package job_test

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

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

// Promise: contract 14g
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
	require.Len(t, job.Codes, len(statuses), "no duplicates")
	require.Equal(t, job.CodeInternal.Spec(), job.Code("RFA_UNHEARD_OF").Spec())
}

// Promise: draft 6.1, 10.3
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

func TestCodeOf(t *testing.T) {
	t.Parallel()
	inner := job.Errorf(job.CodeDBError, "")
	outer := &job.Error{Code: job.CodeTimeout, Cause: inner}
	require.Equal(t, job.CodeDBError, job.CodeOf(fmt.Errorf("saving: %w", inner)))
	require.Equal(t, job.CodeTimeout, job.CodeOf(outer), "the outermost code")
	require.ErrorIs(t, outer, inner)
	require.Equal(t, job.CodeTimeout, job.CodeOf(errors.Join(io.EOF, outer)))
	require.Equal(t, job.CodeInternal, job.CodeOf(io.EOF))
}

func TestPlainTextIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for limit := 3; limit < 12; limit++ {
		cut := job.PlainText("ééééééééé", limit)
		require.LessOrEqual(t, len(cut), limit)
		require.True(t, utf8.ValidString(cut), cut)
		require.True(t, strings.HasSuffix(cut, "..."), cut)
	}
}

// Promise: draft F.5
func TestEveryReasonIsTranslated(t *testing.T) {
	t.Parallel()
	require.Equal(t, "en", job.Languages[0], "the default of draft F.5")
	for _, r := range job.Reasons {
		f := job.NewFailure(r.Reason, 1, job.Backoff{})
		titles, details := map[string]bool{}, map[string]bool{}
		for _, language := range job.Languages {
			titles[r.Reason.Title(language)] = true
			details[f.In(language)] = true
		}
		require.Len(t, titles, len(job.Languages), "%s: one title a language", r.Reason)
		require.Len(t, details, len(job.Languages), "%s: one detail a language", r.Reason)
		require.Equal(t, r.Title, r.Reason.Title("en"))
		require.Equal(t, r.Title, r.Reason.Title("tlh"))
		require.Equal(t, r.Detail, f.In(""))
	}
}
