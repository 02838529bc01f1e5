package main

import (
	"io"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Where anybody may register clients, an address registers a few a minute. The
// operator, and who is on the machine, have no such limit.
func TestAnAddressRegistersFewClients(t *testing.T) {
	t.Parallel()
	const token, limit, tries = "an-operators-long-token", 20, 60
	s := newStack(t, env{
		"FORGERUN_ADMIN_TOKEN": token, "FORGERUN_REGISTRATION_RATE": strconv.Itoa(limit), "FORGERUN_TRUSTED_PROXIES": "127.0.0.0/8",
	})
	s.secret(token)
	api := s.startAPI()
	register := func(from, bearer string) int {
		request, err := http.NewRequest(http.MethodPost, api.url+"/v1/clients", nil)
		require.NoError(t, err)
		if from != "" {
			request.Header.Set("X-Forwarded-For", from)
		}
		if bearer != "" {
			request.Header.Set("Authorization", "Bearer "+bearer)
		}
		response, err := (&http.Client{Timeout: patience}).Do(request)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode == http.StatusTooManyRequests {
			wait, err := strconv.Atoi(response.Header.Get("Retry-After"))
			require.NoError(t, err)
			require.InDelta(t, 2, wait, 1, "60 s for 20")
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Contains(t, string(body), string(job.CodeRateLimited))
		}
		return response.StatusCode
	}
	answers := map[int]int{}
	for range tries {
		answers[register("203.0.113.7", "")]++
		answers[register("2001:db8::"+strconv.Itoa(1+answers[http.StatusCreated]), "")]++ // a network of one subscriber
	}
	require.GreaterOrEqual(t, answers[http.StatusCreated], 2*limit)
	require.GreaterOrEqual(t, answers[http.StatusTooManyRequests], tries, "%v", answers)
	require.Equal(t, 2*tries, answers[http.StatusCreated]+answers[http.StatusTooManyRequests])
	require.Equal(t, http.StatusCreated, register("203.0.113.8", ""), "another address")
	for range 2 * limit {
		require.Equal(t, http.StatusCreated, register("203.0.113.7", token))
		require.Equal(t, http.StatusCreated, register("", ""))
	}
}
