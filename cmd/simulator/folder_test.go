package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func TestClaimFolderEmptiesItsOwn(t *testing.T) {
	t.Parallel()
	dataDir := filepath.Join(t.TempDir(), "data")
	outside := filepath.Join(t.TempDir(), "outside")
	require.NoError(t, os.WriteFile(outside, []byte("kept"), 0o600))

	first, err := claimFolder(dataDir)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(first.path, "pg", "base"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(first.path, "pg", "base", "1"), nil, 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(first.path, "link")))
	_, err = claimFolder(dataDir)
	require.ErrorContains(t, err, "still uses "+first.path)
	require.DirExists(t, filepath.Join(first.path, "pg", "base"), "another demo has deleted nothing")
	first.release()

	second := claimSoon(t, dataDir)
	defer second.release()
	entries, err := os.ReadDir(second.path)
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.Equal(t, marker, entries[0].Name())
	require.FileExists(t, outside)
}

// claimSoon claims a folder that nothing uses any more. A process that another
// test is just starting may hold a copy of the lock for a moment, until it
// executes its program.
func claimSoon(t *testing.T, dataDir string) (f *folder) {
	t.Helper()
	testkit.Eventually(t, "nothing uses the folder any more", func() (ok bool) {
		var err error
		f, err = claimFolder(dataDir)
		return err == nil
	})
	return f
}

// thesisIn makes a folder with somebody's work in it.
func thesisIn(t *testing.T, dir string) (kept string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o700))
	kept = filepath.Join(dir, "thesis.txt")
	require.NoError(t, os.WriteFile(kept, nil, 0o600))
	return kept
}

func TestClaimFolderDeletesNothingForeign(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(t *testing.T, demo string) (kept string){
		"no marker": thesisIn,
		"marker is a link": func(t *testing.T, demo string) string {
			kept := thesisIn(t, demo)
			require.NoError(t, os.Symlink(kept, filepath.Join(demo, marker)))
			return kept
		},
		"a link to elsewhere": func(t *testing.T, demo string) string {
			elsewhere := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(elsewhere, marker), nil, 0o600))
			require.NoError(t, os.Symlink(elsewhere, demo))
			return thesisIn(t, elsewhere)
		},
		"a file": func(t *testing.T, demo string) string {
			require.NoError(t, os.WriteFile(demo, nil, 0o600))
			return demo
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dataDir := t.TempDir()
			kept := make(t, filepath.Join(dataDir, "demo"))
			_, err := claimFolder(dataDir)
			require.ErrorContains(t, err, "nothing was")
			require.FileExists(t, kept)
		})
	}
}
