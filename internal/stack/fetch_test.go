package stack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"
)

// entry is a file of an archive; a link if it says where to.
type entry struct {
	name, content, link string
	mode                int64
}

// copied are those of a copy, as scripts.
var copied = []entry{
	{name: "./bin/postgres", content: "#!/bin/sh\necho 'postgres (PostgreSQL) 17.5'\n", mode: 0o755},
	{name: "bin/initdb", content: "#!/bin/sh\n", mode: 0o755},
	{name: "lib/libpq.so.5.17", content: "library", mode: 0o600},
	{name: "lib/libpq.so.5", link: "libpq.so.5.17"},
}

// jar is an archive of the form of the repository's.
func jar(t *testing.T, entries []entry) []byte {
	t.Helper()
	var packed bytes.Buffer
	compressed, err := xz.NewWriter(&packed)
	require.NoError(t, err)
	files := tar.NewWriter(compressed)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: e.mode, Size: int64(len(e.content))}
		if e.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, e.link
		}
		require.NoError(t, files.WriteHeader(header))
		_, err := files.Write([]byte(e.content))
		require.NoError(t, err)
	}
	require.NoError(t, files.Close())
	require.NoError(t, compressed.Close())
	var archive bytes.Buffer
	outer := zip.NewWriter(&archive)
	for name, content := range map[string][]byte{"META-INF/MANIFEST.MF": nil, "postgres-test.txz": packed.Bytes()} {
		w, err := outer.Create(name)
		require.NoError(t, err)
		_, err = w.Write(content)
		require.NoError(t, err)
	}
	require.NoError(t, outer.Close())
	return archive.Bytes()
}

// fetched is a copy from a repository that serves the archive at the address of the build "test", but for what the first answer is.
func fetched(t *testing.T, archive []byte, first func(http.ResponseWriter)) (c PostgresCopy, asked *atomic.Int32) {
	t.Helper()
	asked = &atomic.Int32{}
	mux := http.NewServeMux()
	const folder = "/maven2/io/zonky/test/postgres/embedded-postgres-binaries-test/17.5.0/"
	mux.HandleFunc("GET "+folder+"embedded-postgres-binaries-test-17.5.0.jar", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 && first != nil {
			first(w)
		}
		_, _ = w.Write(archive)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	sum := sha256.Sum256(archive)
	return PostgresCopy{
		Dir: filepath.Join(t.TempDir(), "programs"), Repository: server.URL + "/maven2/", build: &artifact{"test", hex.EncodeToString(sum[:])},
	}, asked
}

// requireRefused checks that a copy is not taken and nothing of it kept.
func requireRefused(t *testing.T, c PostgresCopy, because string) {
	t.Helper()
	_, err := c.Fetch(t.Context())
	require.ErrorContains(t, err, because)
	require.Empty(t, c.Programs())
	left, err := os.ReadDir(c.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCopyIsFetchedOnce(t *testing.T) {
	t.Parallel()
	c, asked := fetched(t, jar(t, copied), nil)
	for range 2 {
		bin, err := c.Fetch(t.Context())
		require.NoError(t, err)
		require.Equal(t, filepath.Join(c.Dir, "postgres-17.5.0", "bin"), bin)
	}
	require.EqualValues(t, 1, asked.Load())
	library := filepath.Join(c.dir(), "lib", "libpq.so.5")
	content, err := os.ReadFile(library)
	require.NoError(t, err)
	require.Equal(t, "library", string(content))
	info, err := os.Stat(library)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "for whichever user runs the server")
	left, err := os.ReadDir(c.Dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing but the copy")
}

func TestWrongChecksumIsRefused(t *testing.T) {
	t.Parallel()
	c, _ := fetched(t, jar(t, copied), nil)
	c.build.sha256 = artifacts["linux/amd64"].sha256
	requireRefused(t, c, "wrong checksum: SHA-256 is ")
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"} {
		require.Len(t, artifacts[platform].sha256, 64, platform)
	}
}

// A connection that breaks leaves nothing, and the next start has the copy. So it is with a repository that fails.
func TestInterruptedDownloadIsBegunAnew(t *testing.T) {
	t.Parallel()
	archive := jar(t, copied)
	for because, first := range map[string]func(http.ResponseWriter){
		"(to try again, start again)": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
			_, _ = w.Write(archive[:len(archive)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"the repository answers 502": func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
	} {
		c, _ := fetched(t, archive, first)
		requireRefused(t, c, because)
		bin, err := c.Fetch(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, bin)
	}
}

// What a checksum vouches for is unpacked below its folder all the same, and has to run.
func TestArchiveStaysInItsFolder(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]entry{
		"a name that leads out": {name: "../../escaped", content: "x", mode: 0o644},
		"an absolute name":      {name: "/tmp/escaped", content: "x", mode: 0o644},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := fetched(t, jar(t, append(copied[:3:3], bad)), nil)
			requireRefused(t, c, "unpacking: ")
			require.NoFileExists(t, filepath.Join(filepath.Dir(c.Dir), "escaped"))
		})
	}
	c, _ := fetched(t, jar(t, []entry{{name: "bin/postgres", content: "#!/bin/sh\nexit 127\n", mode: 0o755}, copied[1]}), nil)
	requireRefused(t, c, "does not run on this machine")
}
