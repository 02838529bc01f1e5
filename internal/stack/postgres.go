package stack

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	roleName     = "forgerun"
	databaseName = "forgerun"
	passwordName = "password"
	initdbPrefix = "initdb-" // prefix of temporary folders for initdb; a crash may leave an incomplete folder
)

var postgresPrograms = []string{"postgres", "initdb"}

// Postgres is a private server with an empty database "forgerun" and a superuser "forgerun". The superuser has a random password, which is
// stored in the server's folder. Without a password, any local user could connect as superuser and run programs (COPY ... TO PROGRAM).
type Postgres struct {
	*server
	bin      string
	password string // set by makeReady
}

// StartPostgres starts the server and returns once it accepts connections. The error wraps ErrNotInstalled if this machine has no Postgres.
// StartPostgres refuses a folder that another process uses. If a killed process left a server running in the folder, StartPostgres stops
// this server first.
func StartPostgres(ctx context.Context, o ServerOptions) (*Postgres, error) {
	m := o.computer()
	bins := m.find(postgresPrograms...)
	if len(bins) == 0 {
		return nil, notInstalled("the Postgres server (programs postgres and initdb)", "postgresql", "postgresql-server", "postgresql@17")
	}
	// SIGQUIT stops Postgres at once; the next start runs recovery.
	s, err := o.newServer(ctx, "postgres", filepath.Join(bins[0], "postgres"), syscall.SIGQUIT, "postgres", "nobody")
	if err != nil {
		return nil, err
	}
	p := &Postgres{server: s, bin: chooseVersion(bins, s.home.dataDir())}
	s.path, s.prepare, s.arguments, s.ready = filepath.Join(p.bin, "postgres"), p.makeReady, p.args, p.isReady
	return p, s.Start(ctx)
}

// URL returns the connection string of database "forgerun", with the password.
func (p *Postgres) URL() string { return p.URLOf(databaseName) }

// URLOf returns the connection string of the named database on this server.
func (p *Postgres) URLOf(database string) string {
	return "postgres://" + url.UserPassword(roleName, p.password).String() + "@" + address(p.port) + "/" + database + "?sslmode=disable"
}

func (p *Postgres) makeReady(ctx context.Context) error {
	switch _, err := os.Stat(p.home.dataDir()); {
	case err == nil:
		// This PID file is stale, because no server runs here. After a container restart another process may have its PID, and Postgres would
		// refuse to start.
		_ = os.Remove(p.pidFile())
		return p.readPassword()
	case errors.Is(err, fs.ErrNotExist):
		return p.create(ctx)
	default:
		return err
	}
}

// create makes the cluster in a temporary folder and renames the folder once it is complete.
func (p *Postgres) create(ctx context.Context) error {
	halfDone, _ := filepath.Glob(p.home.path(initdbPrefix + "*")) // fails for bad patterns only
	for _, dir := range halfDone {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(p.home.dir, initdbPrefix)
	if err != nil {
		return err
	}
	if p.o.Cluster != "" {
		dir, err = p.copyCluster(ctx, dir)
	} else if err = p.home.user.give(dir); err == nil {
		err = errors.Join(p.writePassword(), p.initdb(ctx, dir))
	}
	if err != nil {
		return err
	}
	return errors.Join(os.Rename(dir, p.home.dataDir()), syncPath(p.home.dir))
}

func (p *Postgres) copyCluster(ctx context.Context, dir string) (string, error) {
	from := &home{dir: p.o.Cluster}
	for file, to := range map[string]string{from.path(passwordName): p.home.dir, from.dataDir(): dir} {
		if out, err := exec.CommandContext(ctx, "cp", "-a", file, to).CombinedOutput(); err != nil {
			return "", fmt.Errorf("copying %s: %w: %s", file, err, out)
		}
	}
	return filepath.Join(dir, dataName), p.readPassword()
}

// initdb sets UTF-8 and code point order, so query results do not depend on the machine's locale.
func (p *Postgres) initdb(ctx context.Context, dir string) error {
	args := []string{
		"--pgdata=" + dir, "--username=" + roleName, "--pwfile=" + p.home.path(passwordName),
		"--auth=" + cmp.Or(p.o.Auth, "scram-sha-256"), "--encoding=UTF8", "--locale=C",
	}
	if runtime.GOOS == "linux" { // other systems may lack C.UTF-8
		args = append(args, "--lc-ctype=C.UTF-8")
	}
	single := p.command(p.path, "--single", "-D", dir, "postgres")
	single.Input = strings.NewReader("CREATE DATABASE " + databaseName + "\n")
	if p.o.throwaway {
		args, single.Args = append(args, "--no-sync"), slices.Insert(single.Args, 1, "-F")
	}
	for _, c := range []Command{p.command(filepath.Join(p.bin, "initdb"), args...), single} {
		if err := RunProcess(ctx, c); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(c.Path), err)
		}
	}
	return nil
}

func (p *Postgres) args() []string {
	args := []string{"-D", p.home.dataDir(), "-c", "timezone=UTC", "-c", "log_timezone=UTC", "-c", "log_checkpoints=off"}
	for _, name := range slices.Sorted(maps.Keys(p.o.Settings)) {
		args = append(args, "-c", name+"="+p.o.Settings[name])
	}
	return append(args, "-c", "listen_addresses="+loopback, "-c", "port="+strconv.Itoa(p.port), "-c", "unix_socket_directories=")
}

// isReady reads the PID file instead of connecting, because another server may answer on the port.
func (p *Postgres) isReady(_ context.Context, pid int) bool {
	text, _ := os.ReadFile(p.pidFile()) // incomplete or missing while the server starts
	return strings.HasPrefix(string(text), strconv.Itoa(pid)+"\n") && strings.HasSuffix(strings.TrimSpace(string(text)), "\nready")
}

func (p *Postgres) pidFile() string { return filepath.Join(p.home.dataDir(), "postmaster.pid") }

func (p *Postgres) writePassword() error {
	p.password = rand.Text()
	path := p.home.path(passwordName)
	if err := os.WriteFile(path, []byte(p.password+"\n"), 0o600); err != nil {
		return err
	}
	return errors.Join(syncPath(path), p.home.user.give(path)) // initdb runs as the server's user and must read the file
}

func (p *Postgres) readPassword() error {
	if p.password != "" {
		return nil
	}
	text, err := os.ReadFile(p.home.path(passwordName))
	if err != nil {
		return fmt.Errorf("read the password of the cluster in %s: %w", p.home.dir, err)
	}
	p.password = strings.TrimSpace(string(text))
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
