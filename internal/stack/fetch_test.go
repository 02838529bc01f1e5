package stack

import (
	"archive/zip"
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func jar(t *testing.T) []byte {
	t.Helper()
	bins := thisMachine().find("postgres", "initdb", "pg_ctl")
	require.NotEmpty(t, bins)
	pack := exec.Command("tar", "-cJf", "-", "-C", filepath.Dir(bins[0]), "--no-recursion",
		"bin/postgres", "bin/initdb", "bin/pg_ctl", "lib")
	pack.Env = append(os.Environ(), "XZ_OPT=-0")
	packed, err := pack.Output()
	require.NoError(t, err)
	var archive bytes.Buffer
	outer := zip.NewWriter(&archive)
	w, err := outer.Create("postgres-test.txz")
	require.NoError(t, err)
	_, err = w.Write(packed)
	require.NoError(t, err)
	require.NoError(t, outer.Close())
	return archive.Bytes()
}

func TestPostgresIsFetchedOnce(t *testing.T) {
	t.Parallel()
	archive := jar(t)
	var responses []func(http.ResponseWriter)
	repository := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const builds = "/maven2/io/zonky/test/postgres/embedded-postgres-binaries-"
		if !strings.HasPrefix(r.URL.Path, builds) || !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		response := responses[0]
		responses = responses[1:]
		response(w)
	}))
	t.Cleanup(repository.Close)
	dir := filepath.Join(tempDir(t), "programs")
	for want, response := range map[string]func(http.ResponseWriter){
		"no version found": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		"unexpected EOF": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
			_, _ = w.Write(archive[:len(archive)/2])
		},
		"not a valid zip file": func(w http.ResponseWriter) { _, _ = w.Write([]byte("something else")) },
	} {
		responses = append(responses, response)
		_, err := FetchPostgres(t.Context(), dir, repository.URL+"/maven2/", slog.New(slog.DiscardHandler))
		require.ErrorContains(t, err, want)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}

	responses = append(responses, func(w http.ResponseWriter) { _, _ = w.Write(archive) })
	for range 2 { // the second call downloads nothing
		bin, err := FetchPostgres(t.Context(), dir, repository.URL+"/maven2/", slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		require.Equal(t, filepath.Join(dir, "postgres-17.5.0", "bin"), bin)
	}
	require.Empty(t, responses)
	m := machine{spareDir: thisMachine().spareDir}
	server, err := StartPostgres(testContext(t), ServerOptions{Dir: postgresDir(t), Programs: FetchedPrograms(dir), machine: &m})
	require.NoError(t, err)
	require.NoError(t, server.Stop())
}

func TestRepositoryMustUseHTTPS(t *testing.T) {
	t.Parallel()
	_, err := FetchPostgres(t.Context(), t.TempDir(), "http://mirror.test/maven2", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "must use https")
}
