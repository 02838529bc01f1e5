package repo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo/repotest"
)

func TestCursorKeyIsTheSameForAllProcesses(t *testing.T) {
	t.Parallel()
	f := setup(t)
	key, err := f.store.CursorKey(f.ctx())
	require.NoError(t, err)
	require.Len(t, key, 32)
	again, err := repotest.OpenURL(t, f.url).CursorKey(f.ctx())
	require.NoError(t, err)
	require.Equal(t, key, again)
}
