package decode

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/job/testbed"
)

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

func FuzzClockMove(f *testing.F) {
	for _, body := range []string{`{"advance":"25h"}`, `{"set":"2031-05-06T07:08:09Z"}`, `{"freeze":false}`, `{"rate":60}`, `[]`} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := ClockMove(body)
		if err == nil && m.Rate != nil {
			require.True(t, *m.Rate >= testbed.MinRate && *m.Rate <= testbed.MaxRate)
		}
	})
}
