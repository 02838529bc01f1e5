package decode

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
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

func TestClockMove(t *testing.T) {
	t.Parallel()
	day, at, yes, no, rate := 25*time.Hour, time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), true, false, 0.1
	for body, want := range map[string]testbed.ClockMove{
		`{"advance":"25h"}`:                        {Advance: &day},
		`{"advance":"25h","set":null,"rate":null}`: {Advance: &day},
		`{"set":"2031-05-06T07:08:09Z"}`:           {Set: &at},
		`{"freeze":true}`:                          {Freeze: &yes},
		`{"freeze":false}`:                         {Freeze: &no},
		`{"rate":0.1}`:                             {Rate: &rate},
	} {
		m, err := ClockMove([]byte(body))
		require.NoError(t, err, body)
		require.Equal(t, want, m, body)
	}
	for body, pointer := range map[string]string{
		`{}`: "", `{"freeze":null}`: "", `{"advance":"1h","rate":2}`: "",
		`{"advance":"-1h"}`: "/advance", `{"advance":"1 day"}`: "/advance", `{"advance":5}`: "/advance", `{"advance":"2600000h"}`: "/advance",
		`{"set":"tomorrow"}`: "/set", `{"freeze":"yes"}`: "/freeze",
		`{"rate":0.09}`: "/rate", `{"rate":3601}`: "/rate", `{"rate":"2"}`: "/rate", `{"speed":2}`: "/speed",
	} {
		_, err := ClockMove([]byte(body))
		var known *job.Error
		require.ErrorAs(t, err, &known, body)
		require.Len(t, known.Violations, 1, body)
		require.Equal(t, pointer, known.Violations[0].Pointer, body)
	}
}
