package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// MavenCentral is the public repository of Postgres builds.
const MavenCentral = "https://repo1.maven.org/maven2"

// FetchedVersion is the Postgres version that FetchPostgres downloads.
const FetchedVersion = "17.5"

const fetchTimeout = 15 * time.Minute

// FetchedPrograms returns the folder of the downloaded Postgres programs in dir, or "" if they are missing.
func FetchedPrograms(dir string) string {
	if bin := filepath.Join(dir, "postgres-"+FetchedVersion+".0", "bin"); holdsPrograms(bin, postgresPrograms) {
		return bin
	}
	return ""
}

// FetchPostgres downloads Postgres into `dir` unless `dir` contains it already. It returns the folder of the programs. The files of an
// interrupted download are never used.
func FetchPostgres(ctx context.Context, dir, repository string, log *slog.Logger) (bin string, err error) {
	if bin := FetchedPrograms(dir); bin != "" {
		return bin, nil
	}
	if u, err := url.Parse(repository); err != nil || u.Scheme != "https" && !net.ParseIP(u.Hostname()).IsLoopback() {
		return "", fmt.Errorf("the repository %q must use https: the checksum of a download comes from there too", repository)
	}
	if runtime.GOOS == "windows" {
		return "", fmt.Errorf("fetching Postgres: %w", errWindows)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(dir, ".fetch-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("not done after %v", fetchTimeout))
	defer cancel()
	log.Info("fetching a private copy of Postgres", "version", FetchedVersion, "from", repository, "folder", dir)
	began, programs := time.Now(), filepath.Join(work, "programs")
	if err := download(ctx, strings.TrimRight(repository, "/"), work, programs); err != nil {
		return "", fmt.Errorf("fetching Postgres %s: %w (start again to try again)", FetchedVersion, err)
	}
	log.Info("the copy of Postgres is complete", "took", time.Since(began).Round(time.Millisecond))
	err = os.Rename(programs, filepath.Join(dir, "postgres-"+FetchedVersion+".0"))
	if bin = FetchedPrograms(dir); bin != "" { // the rename fails if another process has downloaded the same version
		err = nil
	}
	return bin, err
}

// download unpacks Postgres into the folder `programs`. The library embedded-postgres can only download when it starts a server. download
// sets an invalid encoding, so initdb fails after the download and no server starts. This also works as root, although root cannot start
// Postgres.
func download(ctx context.Context, repository, work, programs string) error {
	started := make(chan error, 1)
	go func() {
		started <- embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().Version(FetchedVersion + ".0").
			BinaryRepositoryURL(repository).CachePath(work).BinariesPath(programs).RuntimePath(filepath.Join(work, "run")).
			Port(0).Encoding("none").Logger(io.Discard)).Start()
	}()
	select {
	case err := <-started:
		out, failed := exec.CommandContext(ctx, filepath.Join(programs, "bin", "postgres"), "--version").CombinedOutput()
		if failed != nil && len(out) > 0 {
			err = fmt.Errorf("the downloaded Postgres does not run on this machine: %w: %s", failed, out)
		}
		if failed == nil {
			err = nil
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
