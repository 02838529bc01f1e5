package devstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/forgerun/forgerun/internal/process"
)

const (
	roleName     = "forgerun"
	databaseName = "forgerun"
	passwordName = "password"
	// initdbPrefix begins the names of folders in which initdb works. One that is found at a start is half done.
	initdbPrefix = "initdb-"

	// SQLSTATE codes.
	duplicateDatabase  = "42P04"
	tooManyConnections = "53300"
)

// cluster is Postgres' data folder and how the server is run on it.
type cluster struct {
	home      *home
	bin       string // folder of the programs
	settings  map[string]string
	throwaway bool
	password  string // set once, by the first prepare
	connected bool   // the database has been seen
}

// prepare makes the cluster unless it is there.
func (c *cluster) prepare(ctx context.Context) error {
	switch _, err := os.Stat(c.home.dataDir()); {
	case err == nil:
		return errors.Join(c.readPassword(), c.dropForeignPIDFile())
	case errors.Is(err, fs.ErrNotExist):
		return c.create(ctx)
	default:
		return err
	}
}

// create runs initdb in a folder aside and renames that when it is complete.
func (c *cluster) create(ctx context.Context) error {
	old, _ := filepath.Glob(c.home.path(initdbPrefix + "*")) // fails for bad patterns only
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := c.writePassword(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(c.home.dir, initdbPrefix)
	if err != nil {
		return err
	}
	if err := c.home.user.give(dir); err != nil {
		return err
	}
	if err := c.initdb(ctx, dir); err != nil {
		return err
	}
	if err := os.Rename(dir, c.home.dataDir()); err != nil {
		return err
	}
	return syncPath(c.home.dir)
}

// initdb sets UTF-8 and the order of code points: what a query returns must not depend on the machine's language.
func (c *cluster) initdb(ctx context.Context, dir string) error {
	args := []string{
		"--pgdata=" + dir, "--username=" + roleName, "--pwfile=" + c.home.path(passwordName),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
	}
	if runtime.GOOS == "linux" { // elsewhere C.UTF-8 need not exist
		args = append(args, "--lc-ctype=C.UTF-8")
	}
	if c.throwaway {
		args = append(args, "--no-sync")
	}
	if err := process.Run(ctx, c.home.command("postgres", filepath.Join(c.bin, "initdb"), args, syscall.SIGKILL)); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	return nil
}

// command runs the server. When the parent dies it stops at once, as after Immediate; the next start recovers.
func (c *cluster) command(port int) process.Command {
	settings := []string{"timezone=UTC", "log_timezone=UTC", "log_checkpoints=off"}
	for _, name := range slices.Sorted(maps.Keys(c.settings)) {
		settings = append(settings, name+"="+c.settings[name])
	}
	settings = append(settings, "listen_addresses="+loopback, "port="+strconv.Itoa(port), "unix_socket_directories=")
	args := []string{"-D", c.home.dataDir()}
	for _, setting := range settings {
		args = append(args, "-c", setting)
	}
	return c.home.command("postgres", filepath.Join(c.bin, "postgres"), args, syscall.SIGQUIT)
}

// ready checks the server's pid file, since any server may answer, and makes the database unless it exists.
func (c *cluster) ready(ctx context.Context, pid, port int) (bool, error) {
	if writer, status := c.readPIDFile(); writer != pid || status != "ready" {
		return false, nil
	}
	conn, err := pgx.Connect(ctx, c.url(port, "postgres"))
	switch {
	case isCode(err, tooManyConnections): // its clients were quicker to come back
		return c.connected, nil
	case err != nil:
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if err := ensureDatabase(ctx, conn); err != nil {
		return false, err
	}
	c.connected = true
	return true, nil
}

func ensureDatabase(ctx context.Context, conn *pgx.Conn) error {
	var exists bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", databaseName).Scan(&exists)
	if err != nil || exists {
		return err
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+databaseName); !isCode(err, duplicateDatabase) {
		return err
	}
	return nil
}

func isCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}

// writePassword makes a new password, unless callers may know one from before the cluster was removed under them.
func (c *cluster) writePassword() error {
	if c.password == "" {
		c.password = rand.Text()
	}
	path := c.home.path(passwordName)
	if err := os.WriteFile(path, []byte(c.password+"\n"), 0o600); err != nil {
		return err
	}
	return errors.Join(syncPath(path), c.home.user.give(path)) // initdb reads it
}

func (c *cluster) readPassword() error {
	if c.password != "" {
		return nil
	}
	text, err := os.ReadFile(c.home.path(passwordName))
	if err != nil {
		return fmt.Errorf("the password of the cluster in %s: %w", c.home.dir, err)
	}
	c.password = strings.TrimSpace(string(text))
	return nil
}

// syncPath forces a file or folder to disk.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// orphan trusts a pid file only if that process is a Postgres on this folder: pids are used again.
func (c *cluster) orphan(ctx context.Context) (int, bool) {
	pid, _ := c.readPIDFile()
	if pid == 0 {
		return 0, false
	}
	args := process.CommandLine(ctx, pid)
	if len(args) == 0 || filepath.Base(args[0]) != "postgres" {
		return 0, false
	}
	line := strings.Join(args, " ") + " "
	return pid, strings.Contains(line, " -D "+c.home.dataDir()+" ")
}

// dropForeignPIDFile removes a pid file whose pid now belongs to another program, as after the restart of a
// container: Postgres would take that program for a running server. It deals with other leftovers itself.
func (c *cluster) dropForeignPIDFile() error {
	pid, _ := c.readPIDFile()
	if pid == 0 || syscall.Kill(pid, 0) != nil {
		return nil
	}
	return os.Remove(c.pidFile())
}

func (c *cluster) pidFile() string { return filepath.Join(c.home.dataDir(), "postmaster.pid") }

// readPIDFile reads lines 1 and 8 of postmaster.pid, 0 and "" for what is missing: there is none when no server runs,
// and a short one while it starts.
func (c *cluster) readPIDFile() (pid int, status string) {
	text, _ := os.ReadFile(c.pidFile())
	lines := strings.Split(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return 0, ""
	}
	if len(lines) > 7 {
		status = strings.TrimSpace(lines[7])
	}
	return pid, status
}
