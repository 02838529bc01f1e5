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
)

const (
	roleName     = "forgerun"
	databaseName = "forgerun"
	passwordName = "password"
	// initdbPrefix begins the names of folders in which initdb works. One that is
	// found at a start is half done: a complete one is renamed to dataName.
	initdbPrefix = "initdb-"

	// SQLSTATE codes.
	duplicateDatabase  = "42P04"
	tooManyConnections = "53300"
)

// durability says whether a new cluster is forced to disk.
type durability int

const (
	durable durability = iota
	// throwaway is for clusters that nobody needs after a power failure.
	throwaway
)

// cluster is Postgres' data folder and how the server is run on it.
type cluster struct {
	home       *home
	bin        string // folder of the programs
	settings   map[string]string
	durability durability
	password   string // set once, by the first prepare
	connected  bool   // the database has been seen
}

func (c *cluster) dataDir() string { return c.home.path(dataName) }

// prepare makes the cluster unless it is there.
func (c *cluster) prepare(ctx context.Context) error {
	switch _, err := os.Stat(c.dataDir()); {
	case err == nil:
		return errors.Join(c.readPassword(), c.dropForeignPIDFile())
	case errors.Is(err, fs.ErrNotExist):
		return c.create(ctx)
	default:
		return err
	}
}

// create runs initdb in a folder aside and renames it when it is complete, so
// that a data folder is always a whole one.
func (c *cluster) create(ctx context.Context) error {
	if err := c.removeHalfDone(); err != nil {
		return err
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
	if err := os.Rename(dir, c.dataDir()); err != nil {
		return err
	}
	return syncDir(c.home.dir)
}

func (c *cluster) removeHalfDone() error {
	old, err := filepath.Glob(c.home.path(initdbPrefix + "*"))
	if err != nil {
		return err
	}
	for _, dir := range old {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	return nil
}

// initdb gives text the order of its code points and UTF-8 everywhere: what a
// query returns must not depend on the machine's language.
func (c *cluster) initdb(ctx context.Context, dir string) error {
	args := []string{
		"--pgdata=" + dir, "--username=" + roleName, "--pwfile=" + c.home.path(passwordName),
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
	}
	if runtime.GOOS == "linux" { // elsewhere C.UTF-8 need not exist
		args = append(args, "--lc-ctype=C.UTF-8")
	}
	if c.durability == throwaway {
		args = append(args, "--no-sync")
	}
	p, err := c.run("initdb", args, syscall.SIGKILL).run()
	if err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	select {
	case <-p.exited:
		if p.err != nil {
			return p.log.explain(fmt.Errorf("initdb: %w", p.err), p.output())
		}
		return nil
	case <-ctx.Done():
		// Its own helper processes end when they lose it.
		return errors.Join(fmt.Errorf("initdb: %w", context.Cause(ctx)), p.end(step{syscall.SIGKILL, killGrace}))
	}
}

func (c *cluster) run(program string, args []string, deathSignal syscall.Signal) command {
	return command{
		path: filepath.Join(c.bin, program), args: args,
		dir: c.home.dir, user: c.home.user, log: c.home.log("postgres"), deathSignal: deathSignal,
	}
}

// command runs the server. When the parent dies it stops like after Immediate:
// at once, whatever its clients do; the next start recovers.
func (c *cluster) command(port int) command {
	args := []string{"-D", c.dataDir()}
	set := func(name, value string) { args = append(args, "-c", name+"="+value) }
	set("timezone", "UTC")
	set("log_timezone", "UTC")
	set("log_checkpoints", "off")
	for _, name := range slices.Sorted(maps.Keys(c.settings)) {
		set(name, c.settings[name])
	}
	set("listen_addresses", loopback)
	set("port", strconv.Itoa(port))
	set("unix_socket_directories", "")
	return c.run("postgres", args, syscall.SIGQUIT)
}

// ready waits for the server to say so in its pid file, since a connection
// alone would not tell whose server answered. Then it connects and sees to the
// database.
func (c *cluster) ready(ctx context.Context, pid, port int) (bool, error) {
	f := c.readPIDFile()
	if f.pid != pid || f.status != "ready" {
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

// writePassword makes a new password (of 128 random bits and more), unless
// callers may know one from before the cluster was removed under them.
func (c *cluster) writePassword() error {
	if c.password == "" {
		c.password = rand.Text()
	}
	path := c.home.path(passwordName)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(c.password + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return c.home.user.give(path) // initdb reads it
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

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
