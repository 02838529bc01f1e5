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

// StartRedis starts the server and returns once its data is loaded. Errors are as for StartPostgres.
func StartRedis(ctx context.Context, o ServerOptions) (*Redis, error) {
	m := o.computer()
	path := m.findRedis()
	if path == "" {
		return nil, m.notInstalled("the Redis server (program redis-server or valkey-server)",
			packages{apt: "redis-server", dnf: "valkey", brew: "redis"})
	}
	// Unlike SIGTERM, SIGKILL also ends a paused server, and the append-only file has what was answered.
	s, err := o.newServer(ctx, "redis", path, syscall.SIGKILL, "redis", "valkey", "nobody")
	if err != nil {
		return nil, err
	}
	r := &Redis{s}
	s.program = r
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

// URL returns the server's address as clients of Redis write it, the same over Stop and Start.
func (r *Redis) URL() string { return redisURL(address(r.port)) }

func redisURL(address string) string { return "redis://" + address + "/0" }

// Do sends one command, such as FLUSHALL, which must be answered with OK.
func (r *Redis) Do(ctx context.Context, command string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	lines, err := converse(ctx, r.port, command)
	if err == nil && lines[0] != "+OK" {
		err = fmt.Errorf("%s: Redis answers %q", command, lines[0])
	}
	return err
}

// converse sends commands to the server on the port and returns the lines of the answers, at least one. A client
// library would log refused connections.
func converse(ctx context.Context, port int, commands ...string) ([]string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address(port))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline() // none: wait for ever
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, strings.Join(append(commands, "QUIT"), "\r\n")+"\r\n"); err != nil {
		return nil, err
	}
	const limit = 64 << 10
	answer, err := io.ReadAll(io.LimitReader(conn, limit))
	return strings.Split(string(answer), "\r\n"), err
}

func (r *Redis) prepare(context.Context) error {
	if err := os.Mkdir(r.home.dataDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return r.home.user.give(r.home.dataDir())
}

func (r *Redis) arguments() []string {
	args := []string{"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction"}
	for _, name := range slices.Sorted(maps.Keys(r.o.Settings)) {
		args = append(args, "--"+name, r.o.Settings[name])
	}
	return append(args, "--bind", loopback, "--port", strconv.Itoa(r.port), "--daemonize", "no", "--logfile", "", "--dir", r.home.dataDir())
}

// ready also asks for the process id, since another Redis may have the port. While it loads data it refuses PING.
func (r *Redis) ready(ctx context.Context, pid int) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lines, err := converse(ctx, r.port, "PING", "INFO server")
	return err == nil && lines[0] == "+PONG" && slices.Contains(lines, "process_id:"+strconv.Itoa(pid))
}
