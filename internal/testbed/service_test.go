package testbed

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/internal/testkit"
)

func TestStartedService(t *testing.T) {
	t.Parallel()
	s, err := newService(testkit.Program(t, "forgerun"), os.Environ(), 0.02)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.stop(); _ = os.RemoveAll(s.dir) })
	require.NoError(t, s.start(t.Context()))
	address, pid := s.url, s.child.PID()
	client := []string{"sh", "-c", `echo "at $FORGERUN_URL"; exec "$0" jobs submit SUCCESS_FAST --wait`, testkit.Program(t, "forgerun")}
	for code, args := range map[int][]string{
		exitOK: append([]string{"--"}, client...), exitDifferent: append([]string{"--complete", "--"}, client...),
		exitUnusable: {"--", "sh", "-c", `echo "at $FORGERUN_URL"`},
	} {
		got, stdout, stderr := invoke(t, append([]string{"verdict", "--url", address}, args...)...)
		require.Equal(t, code, got, stderr)
		require.Contains(t, stdout, "at "+address+"\n")
		concluded := map[bool]string{true: "\nNOTHING JUDGED\n", false: "\nPASSED WITH WARNINGS: 1 warning\n"}
		require.Contains(t, stdout, concluded[code == exitUnusable])
	}
	_, stdout, _ := invoke(t, "verdict", "--url", address, "--seeds", "2", "--", "sh", "-c", `echo "id $FORGERUN_CLIENT_ID"`)
	ids := regexp.MustCompile(`(?m)^id [0-9a-f-]{36}$`).FindAllString(stdout, -1)
	require.Len(t, ids, 2)
	require.NotEqual(t, ids[0], ids[1], "each run has a client of its own")
	_, key, err := stack.Register(t.Context(), address)
	require.NoError(t, err)
	script := []string{"sh", "-c", `echo "with $FORGERUN_API_KEY"; exec "$0" jobs submit SUCCESS_FAST --wait`, testkit.Program(t, "forgerun")}
	code, stdout, stderr := invoke(t, append([]string{"verdict", "--url", address, "--key", key, "--"}, script...)...)
	require.Equal(t, exitOK, code, stderr)
	require.Contains(t, stdout, "with "+key+"\n", "the given key is used")
	require.NoError(t, s.stop())
	require.NoError(t, s.stop(), "a second stop does nothing")
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the process has ended and was reaped")
}

func TestEnvironmentOfAService(t *testing.T) {
	t.Parallel()
	s, err := newService("", []string{"PATH=/bin", "FORGERUN_DATABASE_URL=postgres://prod", "OTHER=FORGERUN_"}, 0.02)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.dir))
	environ := s.command.Env
	require.Subset(t, environ, []string{
		"PATH=/bin", "OTHER=FORGERUN_", "FORGERUN_DATA_DIR=" + s.dir, "FORGERUN_TIME_SCALE=0.02", "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true",
	})
	require.NotContains(t, strings.Join(environ, " "), "postgres://prod")
}

func TestVerdictWithoutATestBed(t *testing.T) {
	t.Parallel()
	ran, plain := filepath.Join(t.TempDir(), "ran"), httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	code, _, stderr := invoke(t, "verdict", "--url", plain.URL, "--", "touch", ran)
	require.Equal(t, exitUnusable, code)
	require.Contains(t, stderr, "forgerun: ")
	require.NoFileExists(t, ran)
}
