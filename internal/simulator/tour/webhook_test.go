package tour

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/judge/collect"
	"github.com/forgerun/forgerun/internal/simulator/receiver"
)

func TestRegistrationsThatAreWrong(t *testing.T) {
	t.Parallel()
	const id = `"webhook_id":"0190a1b2-c3d4-7000-8000-0000000000e1","created_at":"2030-01-31T12:00:00Z"`
	for name, c := range map[string]struct {
		status       int
		body         string
		err, finding string
	}{
		"right":        {201, `{` + id + `,"secret":"whsec_x"}`, "", ""},
		"no secret":    {201, `{` + id + `}`, "the service registered the webhook without a secret", ""},
		"another form": {201, `{` + id + `,"secret":"x"}`, "", "the webhook's secret does not begin with whsec_"},
		"no time": {201, `{"webhook_id":"w","secret":"whsec_x","created_at":"0001-01-01T00:00:00Z"}`, "",
			"the registration of the webhook has no created_at"},
		"another address": {400, `{"code":"RFA_JOB_VALIDATION_FAILED","violations":[{"pointer":"/url","detail":"Not so."}]}`,
			"the service cannot deliver to the receiver at http://receiver.test (Not so.): set FORGERUN_WEBHOOK_ALLOW_PRIVATE=true", ""},
		"other events": {400, `{"code":"RFA_JOB_VALIDATION_FAILED","violations":[{"pointer":"/events","detail":"Not so."}]}`,
			"the webhook cannot be registered: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "application/problem+json"}[c.status < 300])
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			t.Cleanup(server.Close)
			api, err := client.New(client.Config{URL: server.URL, Key: "frk_x"})
			require.NoError(t, err)
			r, err := receiver.Listen("127.0.0.1:0", "http://receiver.test", receiver.Options{
				Names: map[string][]receiver.Answer{"webhook-success": nil},
			})
			require.NoError(t, err)
			t.Cleanup(r.Close)
			k := &kindPlay{Row: Row{Kind: "WEBHOOK_SUCCESS"}}
			k.tour = &tour{facts: newLedger(), receiver: r, account: collect.Account{Client: api}}
			err = k.subscribe(t.Context())
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
			} else {
				require.NoError(t, err)
			}
			if c.finding == "" {
				require.Empty(t, k.Findings)
			} else {
				require.Equal(t, []string{c.finding}, k.Findings)
			}
		})
	}
}
