package process

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	l := Log{Path: filepath.Join(t.TempDir(), "server.log"), Mode: 0o600, Bounded: true}
	require.NoError(t, l.trim(), "no log yet")
	f, size, err := l.open()
	require.NoError(t, err)
	require.Zero(t, size)
	line := strings.Repeat("x", 1023) + "\n"
	_, err = f.WriteString(strings.Repeat(line, maxLogBytes/len(line)) + "the newest line\n")
	require.NoError(t, err)

	require.NoError(t, l.trim())
	_, err = f.WriteString("written on\n")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	text, err := os.ReadFile(l.Path)
	require.NoError(t, err)
	require.Len(t, text, keptLogBytes+len("written on\n"))
	require.True(t, strings.HasSuffix(string(text), "the newest line\nwritten on\n"))
	require.NoError(t, l.trim(), "small enough now")
	p := &Process{log: l, offset: maxLogBytes}
	require.Contains(t, p.Output(), "written on", "a place before the cut")
}

func TestErrorsShowTheLastLines(t *testing.T) {
	t.Parallel()
	l := Log{Path: filepath.Join(t.TempDir(), "server.log")}
	require.NoError(t, os.WriteFile(l.Path, []byte("a former run\n"+strings.Repeat("line\n", 30)+"last\n"), 0o600))
	p := &Process{log: l, offset: int64(len("a former run\n"))}
	err := p.Explain(ErrExited)
	require.ErrorIs(t, err, ErrExited)
	require.NotContains(t, err.Error(), "former run")
	require.Equal(t, tailLines, strings.Count(err.Error(), logIndent))
	require.True(t, strings.HasSuffix(err.Error(), "| last"))
	info, err := os.Stat(l.Path)
	require.NoError(t, err)
	p.offset = info.Size()
	require.ErrorContains(t, p.Explain(ErrExited), "nothing in")
}
