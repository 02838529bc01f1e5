//go:build slow

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The recipes of docs/reference/testbed.md work.
func TestClockRecipes(t *testing.T) {
	s := newStack(t, testBed)
	api, _, _ := s.startDelivering()
	recipes := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "../../examples/go/clock")
	recipes.Env = append(os.Environ(), "FORGERUN_URL="+api.url)
	said, err := recipes.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Equal(t, 5, strings.Count(string(said), "--- PASS"), string(said))
}
