package httpkit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestBodyMemoryOfAllClients(t *testing.T) {
	t.Parallel()
	m := newBodyMemory(100)
	for i := range 4 {
		require.NoError(t, m.take(job.ID{byte(i)}, 25))
		require.ErrorContains(t, m.take(job.ID{byte(i)}, 1), "large request bodies")
	}
	require.ErrorContains(t, m.take(job.ID{9}, 1), "The server is receiving too many large request bodies")
	m.give(job.ID{1}, 25)
	require.NoError(t, m.take(job.ID{9}, 25))
}
