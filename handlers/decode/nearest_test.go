package decode

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]job.Kind{
		"SUCCESS_FAST":           job.SuccessFast,
		"success-fast":           job.SuccessFast,
		"SUCCES_FAST":            job.SuccessFast,
		"SUCCESS_FATS":           job.SuccessFast,
		"CPU_BRUST":              job.CPUBurst,
		"RETRY_ON_FAILURE":       job.RetryOnFail,
		"RETRY_ON_FAILS":         job.RetryOnFail,
		"WEBHOOK_5X":             job.Webhook5xx,
		"":                       "",
		"x":                      "",
		"DANCE":                  "",
		"SUCCESS_FAST\x00":       job.SuccessFast,
		strings.Repeat("S", 41):  "",
		strings.Repeat("S", 1e6): "",
	} {
		require.Equal(t, want, Nearest(text, job.Kinds()), "%.50s", text)
	}
	require.Equal(t, " Did you mean type?", DidYouMean("typ", []string{"event", "type"}))
	require.Empty(t, DidYouMean("colour", []string{"event", "type"}))
}

// The distance is symmetric, and bounded by what the lengths allow.
func FuzzDistance(f *testing.F) {
	f.Add("kitten", "sitting")
	f.Add("ab", "ba")
	f.Add("", "abc")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(a) > maxGuessBytes || len(b) > maxGuessBytes {
			t.Skip()
		}
		n := distance(a, b, maxGuessBytes+1)
		require.Equal(t, n, distance(b, a, maxGuessBytes+1))
		require.Equal(t, a == b, n == 0)
		require.LessOrEqual(t, n, max(len(a), len(b)))
		require.GreaterOrEqual(t, n, max(len(a), len(b))-min(len(a), len(b)))
		for limit := 1; limit < 5; limit++ {
			require.Equal(t, min(n, limit), distance(a, b, limit))
		}
	})
}

// However many names are wrong, suggestions are looked for a few times only.
func TestSuggestionsAreBounded(t *testing.T) {
	t.Parallel()
	body := `{"jobs":[` + strings.TrimSuffix(strings.Repeat(`{"type":"EXECUT"},`, job.MaxBatchItems), ",") + `]}`
	r, err := Batch([]byte(body), "", Limits{MaxPayload: 1 << 10})
	require.NoError(t, err)
	suggested := 0
	for _, item := range r.Items[:job.MaxViolations] {
		require.Len(t, item.Request.Violations, 1)
		if strings.Contains(item.Request.Violations[0].Detail, "Did you mean EXECUTE?") {
			suggested++
		}
	}
	require.Equal(t, maxGuesses, suggested)
}
