package access_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/cli/access"
)

type world struct {
	t   *testing.T
	env map[string]string
}

func newWorld(t *testing.T) *world {
	dir := t.TempDir()
	return &world{t, map[string]string{access.EnvContexts: filepath.Join(dir, "conf", "contexts.yaml"), access.EnvDataDir: dir}}
}

func (w *world) getenv(name string) string { return w.env[name] }

func (w *world) dev(pid int) {
	text := `{"pid": ` + strconv.Itoa(pid) + `, "url": "http://dev", "api_key": "k-dev", ` +
		`"admin_url": "http://dev-admin", "admin_token": "t-dev"}`
	require.NoError(w.t, os.WriteFile(filepath.Join(w.env[access.EnvDataDir], "dev.json"), []byte(text), 0o600))
}

func (w *world) contexts(current string) {
	p, err := access.LoadContexts(w.getenv)
	require.NoError(w.t, err)
	p.Current = current
	p.All = map[string]access.Endpoint{
		"one": {URL: "http://one/v1", Key: "k-one", AdminURL: "http://one-admin", AdminToken: "t-one"}, "two": {URL: "http://two"},
	}
	require.NoError(w.t, p.Save())
}

func (w *world) requireClient(flags access.Flags, url, key string) {
	w.t.Helper()
	gotURL, gotKey, err := access.Finder{Flags: flags, Getenv: w.getenv}.Client()
	require.NoError(w.t, err)
	require.Equal(w.t, []string{url, key}, []string{gotURL, gotKey})
}

func TestOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, _, err := access.Finder{Getenv: w.getenv}.Client()
	require.ErrorIs(t, err, access.ErrNoAddress)
	require.ErrorContains(t, err, "FORGERUN_URL")
	w.dev(os.Getpid())
	w.requireClient(access.Flags{}, "http://dev", "k-dev")
	url, token, err := access.Finder{Getenv: w.getenv}.Operator()
	require.NoError(t, err)
	require.Equal(t, []string{"http://dev-admin", "t-dev"}, []string{url, token})
	w.contexts("one")
	w.requireClient(access.Flags{}, "http://one/v1", "k-one")
	w.requireClient(access.Flags{Endpoint: access.Endpoint{URL: "http://one"}}, "http://one", "k-one") // the address of context "one"
	w.requireClient(access.Flags{Endpoint: access.Endpoint{URL: "http://elsewhere"}}, "http://elsewhere", "")
	w.env[access.EnvContext] = "two"
	w.requireClient(access.Flags{}, "http://two", "")
	w.env[access.EnvKey] = "k-env"
	w.requireClient(access.Flags{}, "http://two", "k-env")
	w.env[access.EnvURL] = "http://env"
	w.requireClient(access.Flags{}, "http://env", "k-env")
	w.requireClient(access.Flags{Context: "two"}, "http://two", "") // EnvKey is sent only to EnvURL
	w.requireClient(access.Flags{Context: "one"}, "http://one/v1", "k-one")
	w.requireClient(access.Flags{Context: "one", Endpoint: access.Endpoint{Key: "k-flag"}}, "http://one/v1", "k-flag")
	_, _, err = access.Finder{Flags: access.Flags{Context: "three"}, Getenv: w.getenv}.Client()
	require.ErrorContains(t, err, `there is no context "three"`)
	require.ErrorContains(t, err, "known contexts: one, two")
}

func TestDevThatHasEnded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.dev(1 << 30)
	_, _, err := access.Finder{Getenv: w.getenv}.Client()
	require.ErrorContains(t, err, "has ended")
}

func TestPermissionsOfContexts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.contexts("one")
	path := w.env[access.EnvContexts]
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, os.Chmod(path, 0o644))
	_, _, err = access.Finder{Getenv: w.getenv}.Client()
	require.ErrorContains(t, err, "chmod 600 "+path)
	require.NoError(t, os.Chmod(path, 0o600))
	require.NoError(t, os.WriteFile(path, []byte("contexts: frk_x"), 0o600))
	_, err = access.LoadContexts(w.getenv)
	require.ErrorContains(t, err, "is not a valid file of contexts")
	require.NotContains(t, err.Error(), "frk_x")
}

func TestFirstToken(t *testing.T) {
	t.Parallel()
	for list, want := range map[string]string{
		"": "", "0123456789abcdef": "0123456789abcdef", "ann:one,bob:two": "one", "one,bob:two": "one", "Not-a-name:x": "Not-a-name:x",
	} {
		require.Equal(t, want, access.FirstToken(list))
	}
}
