package client_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

// Every error names the request that it is about, without its query: that can have what a log must not.
func TestErrorsNameTheRequest(t *testing.T) {
	t.Parallel()
	s := serveWith(t, client.Config{MaxTries: 1}, problem(404, client.CodeJobNotFound),
		reply{status: 200, kind: "text/html", body: "<p>"}, reply{cut: true})
	for _, expected := range []string{"404", "it is not JSON"} {
		_, err := s.c.Job(t.Context(), "j 1")
		require.ErrorContains(t, err, "GET "+s.url+"/v1/jobs/j%201")
		require.ErrorContains(t, err, expected)
	}
	var lost *client.NoAnswerError
	for _, err := range s.c.Jobs(t.Context(), client.JobFilter{WorkKind: "SECRET"}) {
		require.ErrorAs(t, err, &lost)
		require.Equal(t, s.url+"/v1/jobs", lost.URL)
		require.NotContains(t, err.Error(), "SECRET")
	}
	require.NotNil(t, lost)
	for _, err := range s.c.Stream(t.Context(), client.StreamOptions{JobID: "j"}) {
		require.ErrorContains(t, err, "GET "+s.url+"/v1/jobs/j/events")
	}
}
