package work

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestFullDiskIsExhausted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a small file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	r := New(Config{TempDir: dir, Limit: limit})
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 2<<20), 0o600), syscall.ENOSPC)
	_, err := r.Run(t.Context(), define(t, job.IOHeavy), 1, job.Observer{})
	require.ErrorIs(t, err, job.ErrExhausted)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorIs(t, r.Probe(t.Context(), job.IOHeavy), syscall.ENOSPC)
}
