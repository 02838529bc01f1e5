package testbed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// Each status of the contract has a code whose status it is.
func TestStatusesHaveCodes(t *testing.T) {
	t.Parallel()
	for _, spec := range job.Codes {
		code, ok := CodeOf(spec.Status)
		require.True(t, ok)
		require.Equal(t, spec.Status, code.Spec().Status)
	}
	code, _ := CodeOf(503)
	require.Equal(t, job.CodeStorageUnavailable, code)
	_, ok := CodeOf(418)
	require.False(t, ok)
}
