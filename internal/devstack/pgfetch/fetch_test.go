package pgfetch

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

// programs are those of a copy, as scripts.
var programs = []entry{
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

func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

// repository serves an archive at the address of the build "test".
func repository(t *testing.T, serve http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	const folder = "/maven2/io/zonky/test/postgres/embedded-postgres-binaries-test/17.5.0/"
	mux.HandleFunc("GET "+folder+"embedded-postgres-binaries-test-17.5.0.jar", serve)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/maven2/"
}

func source(t *testing.T, url, sum string) Source {
	t.Helper()
	return Source{Dir: filepath.Join(t.TempDir(), "programs"), Repository: url, build: &artifact{"test", sum}}
}

func requireNothingKept(t *testing.T, s Source) {
	t.Helper()
	require.Empty(t, s.Programs())
	left, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCopyIsFetchedOnce(t *testing.T) {
	t.Parallel()
	archive := jar(t, programs)
	var asked atomic.Int32
	s := source(t, repository(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write(archive)
	}), sum(archive))
	for range 2 {
		bin, err := s.Fetch(t.Context())
		require.NoError(t, err)
		require.Equal(t, filepath.Join(s.Dir, "postgres-17.5.0", "bin"), bin)
	}
	require.EqualValues(t, 1, asked.Load())
	library := filepath.Join(s.dir(), "lib", "libpq.so.5")
	content, err := os.ReadFile(library)
	require.NoError(t, err)
	require.Equal(t, "library", string(content))
	info, err := os.Stat(library)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode().Perm(), "for whichever user runs the server")
	left, err := os.ReadDir(s.Dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing but the copy")
}

func TestWrongChecksumIsRefused(t *testing.T) {
	t.Parallel()
	archive := jar(t, programs)
	s := source(t, repository(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }), sum([]byte("another")))
	_, err := s.Fetch(t.Context())
	require.ErrorIs(t, err, ErrChecksum)
	require.ErrorContains(t, err, "nothing of it was kept")
	requireNothingKept(t, s)
}

// A connection that breaks leaves nothing, and the next start has the copy.
func TestInterruptedDownloadIsBegunAnew(t *testing.T) {
	t.Parallel()
	archive := jar(t, programs)
	var asked atomic.Int32
	s := source(t, repository(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) > 1 {
			_, _ = w.Write(archive)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
		_, _ = w.Write(archive[:len(archive)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}), sum(archive))
	_, err := s.Fetch(t.Context())
	require.ErrorContains(t, err, "interrupted after")
	require.ErrorContains(t, err, "start again")
	requireNothingKept(t, s)
	bin, err := s.Fetch(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, bin)
}

func TestRepositoryThatFails(t *testing.T) {
	t.Parallel()
	s := source(t, repository(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }), "")
	_, err := s.Fetch(t.Context())
	require.ErrorContains(t, err, "the repository answers 502")
	requireNothingKept(t, s)
}

// What a checksum vouches for is unpacked below its folder all the same.
func TestArchiveStaysInItsFolder(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]entry{
		"a name that leads out":       {name: "../../escaped", content: "x", mode: 0o644},
		"an absolute name":            {name: "/tmp/escaped", content: "x", mode: 0o644},
		"a link that leads out":       {name: "lib/link", link: "../../escaped"},
		"an absolute link":            {name: "lib/link", link: "/etc/passwd"},
		"a file that is there twice":  programs[0],
		"a program that does not run": {name: "bin/postgres/x", content: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive := jar(t, append(programs[:3:3], bad))
			s := source(t, repository(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }), sum(archive))
			_, err := s.Fetch(t.Context())
			require.ErrorContains(t, err, "unpacking: ")
			requireNothingKept(t, s)
			require.NoFileExists(t, filepath.Join(filepath.Dir(s.Dir), "escaped"))
		})
	}
}

func TestProgramsThatDoNotRun(t *testing.T) {
	t.Parallel()
	archive := jar(t, []entry{{name: "bin/postgres", content: "#!/bin/sh\nexit 127\n", mode: 0o755}, programs[1]})
	s := source(t, repository(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(archive) }), sum(archive))
	_, err := s.Fetch(t.Context())
	require.ErrorContains(t, err, "does not run on this machine")
	requireNothingKept(t, s)
}

func TestEveryReleasedPlatformHasACopy(t *testing.T) {
	t.Parallel()
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64"} {
		require.Len(t, artifacts[platform].sha256, 64, platform)
	}
}
