package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Guesses at either listener are refused after the first ones, without a look
// at storage, and hardly logged. Who was known before goes on.
func TestGuessesAreRefusedUnseen(t *testing.T) {
	t.Parallel()
	const token, guesses = "an-operators-long-token", 3000
	s := newStack(t, env{"FORGERUN_ADMIN_TOKEN": token})
	s.secret(token)
	api := s.startAPI()
	u := s.newUser(api)
	require.Equal(t, http.StatusNotFound, u.look(api, u.key).status)
	profiles := "http://" + api.logged("admin listening")["address"].(string) + "/debug/pprof/cmdline"
	ask := func(url, key string) int {
		request, err := http.NewRequest(http.MethodGet, url, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+key)
		response, err := (&http.Client{Timeout: patience}).Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		if response.StatusCode == http.StatusTooManyRequests {
			require.NotEmpty(t, response.Header.Get("Retry-After"))
		}
		return response.StatusCode
	}
	require.Equal(t, http.StatusOK, ask(profiles, token))
	before := len(api.log.String())
	answers := map[int]int{}
	for i := range guesses {
		answers[ask(api.url+"/v1/jobs", fmt.Sprintf("guess-%d", i))]++
		answers[ask(profiles, fmt.Sprintf("guess-%d", i))]++
	}
	require.Equal(t, 2*guesses, answers[http.StatusUnauthorized]+answers[http.StatusTooManyRequests], "%v", answers)
	families := api.scrape()
	require.EqualValues(t, answers[http.StatusUnauthorized], sum(families, "auth_attempts_failed_total"))
	require.EqualValues(t, answers[http.StatusTooManyRequests], sum(families, "auth_attempts_refused_total"))
	require.Greater(t, answers[http.StatusTooManyRequests], guesses, "of %v", answers)

	require.Equal(t, http.StatusNotFound, u.look(api, u.key).status)
	require.Equal(t, http.StatusOK, ask(profiles, token))
	api.logged("authentication failed", `"remote_address":"127.0.0.1"`)
	require.Less(t, len(api.log.String())-before, guesses*100, "of about 600 bytes each")
	require.NotContains(t, strings.ToLower(api.log.String()), "guess-")
	s.checkInvariants()
}
