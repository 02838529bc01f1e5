package stack

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: only a root parent runs its servers as another user")
	}
}

func userOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return int(ownerOf(info).Uid)
}

func TestRootUsesSpareFolderForUnreachableFiles(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	closed := t.TempDir() // mode 0700, like /root
	m := thisMachine()
	m.spareDir = filepath.Join(tempDir(t), "spare")
	text, log := newLogger()
	o := ServerOptions{Dir: filepath.Join(closed, "stack", "redis"), Logger: log, machine: &m}
	first := newRedis(t, o)
	ask(t, first.server, "SET kept yes")
	require.NoError(t, first.Stop())
	require.Equal(t, m.spareDir, filepath.Dir(first.home.dir))
	require.True(t, text.contains("kept_in="+first.home.dir))
	second := newRedis(t, o)
	require.Contains(t, ask(t, second.server, "GET kept"), "yes")
	require.NoError(t, second.Stop())
	require.NoError(t, os.RemoveAll(o.Dir))
	third := newRedis(t, o)
	require.NotContains(t, ask(t, third.server, "GET kept"), "yes", "a folder that is created again starts empty")
	require.NoError(t, third.Stop())

	for name, occupied := range map[string]bool{"spare folder unreachable": false, "data exists": true} {
		o := ServerOptions{Dir: filepath.Join(t.TempDir(), "redis"), Logger: log, machine: &machine{programDirs: m.programDirs}}
		o.machine.spareDir = filepath.Join(t.TempDir(), "closed as well")
		if occupied {
			o.machine.spareDir = m.spareDir
			require.NoError(t, os.MkdirAll(filepath.Join(o.Dir, dataName), 0o700))
		}
		_, err := StartRedis(testContext(t), o)
		require.ErrorContains(t, err, "use a folder that every user can reach", name)
	}
}

func TestRootUsesTheOwnerOfExistingFiles(t *testing.T) {
	t.Parallel()
	requireRoot(t)
	nobody, err := lookupAccount("nobody")
	require.NoError(t, err)
	dir := filepath.Join(tempDir(t), "redis")
	require.NoError(t, os.Mkdir(dir, 0o711))
	require.NoError(t, os.Mkdir(filepath.Join(dir, dataName), 0o700))
	require.NoError(t, nobody.give(filepath.Join(dir, dataName)))
	r := newRedis(t, ServerOptions{Dir: dir})
	require.Equal(t, nobody.Uid, r.home.user.Uid)
}
