package stack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Redis is a private Redis (or Valkey) server. It writes an append-only file, synced every second, and evicts no key.
type Redis struct{ *server }

// StartRedis starts the server and returns once its data is loaded. Like StartPostgres, it reports a missing program, refuses a folder in
// use, and first stops a server that a killed process left running.
func StartRedis(ctx context.Context, o ServerOptions) (*Redis, error) {
	m := o.computer()
	path := m.findRedis()
	if path == "" {
		return nil, notInstalled("the Redis server (program redis-server or valkey-server)", "redis-server", "valkey", "redis")
	}
	// SIGKILL ends even a paused server, which SIGTERM does not. Acknowledged writes survive, because Redis usually writes to its append-only
	// file before it responds.
	s, err := o.newServer(ctx, "redis", path, syscall.SIGKILL, "redis", "valkey", "nobody")
	if err != nil {
		return nil, err
	}
	r := &Redis{s}
	s.prepare, s.arguments, s.ready = r.makeData, r.args, r.isReady
	return r, s.Start(ctx)
}

func (m machine) findRedis() string {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if dirs := m.find(name); len(dirs) > 0 {
			return filepath.Join(dirs[0], name)
		}
	}
	return ""
}

// URL returns the server's redis:// URL.
func (r *Redis) URL() string { return "redis://" + address(r.port) + "/0" }

// Do sends a command, such as FLUSHALL, and expects OK.
func (r *Redis) Do(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	lines, err := r.converse(ctx, command)
	if err == nil && lines[0] != "+OK" {
		err = fmt.Errorf("%s: Redis answers %q", command, lines[0])
	}
	return err
}

// converse sends the commands and returns the lines of the responses. It uses no client library, because a library would log each refused
// connection.
func (r *Redis) converse(ctx context.Context, commands ...string) ([]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address(r.port))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, strings.Join(append(commands, "QUIT"), "\r\n")+"\r\n"); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 64<<10))
	return strings.Split(string(answer), "\r\n"), err
}

func (r *Redis) makeData(context.Context) error {
	if err := os.Mkdir(r.home.dataDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return r.home.user.give(r.home.dataDir())
}

func (r *Redis) args() []string {
	args := []string{"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction"}
	for _, name := range slices.Sorted(maps.Keys(r.o.Settings)) {
		args = append(args, "--"+name, r.o.Settings[name])
	}
	return append(args, "--bind", loopback, "--port", strconv.Itoa(r.port), "--daemonize", "no", "--logfile", "", "--dir", r.home.dataDir())
}

// isReady sends PING, which Redis refuses until its data is loaded. It compares the process id, because another server may use the port.
func (r *Redis) isReady(ctx context.Context, pid int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lines, err := r.converse(ctx, "PING", "INFO server")
	return err == nil && lines[0] == "+PONG" && slices.Contains(lines, "process_id:"+strconv.Itoa(pid))
}
