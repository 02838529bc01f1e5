package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	programsVariable = "FORGERUN_TEST_PROGRAMS" // folder of prebuilt programs
	raceVariable     = "FORGERUN_TEST_RACE"     // makes Program build with the race detector
)

var programs struct {
	mu    sync.Mutex
	dir   string
	built map[string]error
}

// Program builds cmd/NAME once per test binary and returns its path. If FORGERUN_TEST_PROGRAMS is set, Program returns the program in that
// folder. FORGERUN_TEST_RACE=1 adds the race detector. A package's TestMain calls RemovePrograms at the end.
func Program(t testing.TB, name string) string {
	t.Helper()
	if dir := os.Getenv(programsVariable); dir != "" {
		return filepath.Join(dir, name)
	}
	programs.mu.Lock()
	defer programs.mu.Unlock()
	if programs.dir == "" {
		var err error
		programs.dir, err = os.MkdirTemp("", "forgerun-programs-")
		require.NoError(t, err)
		programs.built = map[string]error{}
	}
	path := filepath.Join(programs.dir, name)
	err, known := programs.built[name]
	if !known {
		err = build(name, path)
		programs.built[name] = err
	}
	require.NoError(t, err)
	return path
}

func build(name, path string) error {
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w", "-o", path}
	if os.Getenv(raceVariable) == "1" {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "github.com/forgerun/forgerun/cmd/"+name)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// RemovePrograms removes the programs built by Program.
func RemovePrograms() { _ = os.RemoveAll(programs.dir) }
