package lab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The metrics that do nothing have the methods of the real ones, and take their
// place in the build.
func TestServiceBuildsUncounted(t *testing.T) {
	t.Parallel()
	path, err := BuildUncounted(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.FileExists(t, path)
}
