package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
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

// RedisOptions says where and how a private Redis runs.
type RedisOptions struct {
	// Dir is the server's folder: its append-only file (in "data") and the log. It
	// is created when missing, and used again when present. A root parent runs the
	// server as user "redis", "valkey" or "nobody"; see PostgresOptions.Dir for
	// what that means.
	Dir string
	// Port is the TCP port on 127.0.0.1; 0 chooses a free one.
	Port int
	// Settings are configuration directives of one value, such as maxmemory.
	Settings map[string]string
	// Logger gets a line for each start, and for an end that nobody asked for.
	// Nil: none.
	Logger *slog.Logger
}

// Redis is a private Redis (or Valkey) server. It appends every write to a file
// that is forced to disk once a second, and never evicts a key.
type Redis struct {
	server *server
}

// StartRedis starts the server and returns once it answers, its data loaded.
// Errors are as for StartPostgres.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	return thisMachine().startRedis(ctx, o)
}

func (m machine) startRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if o.Dir == "" {
		return nil, errors.New("devstack: RedisOptions.Dir is empty")
	}
	if err := checkPort(o.Port); err != nil {
		return nil, err
	}
	program, ok := m.findRedis()
	if !ok {
		return nil, notInstalled("the Redis server (program redis-server or valkey-server)", "redis-server", "redis")
	}
	log := loggerOrNone(o.Logger)
	home, err := openHome(ctx, m, o.Dir, program, []string{"redis", "valkey", "nobody"}, log)
	if err != nil {
		return nil, fmt.Errorf("devstack: the folder for Redis: %w", err)
	}
	r := &Redis{server: &server{
		name: "redis", home: home, log: log, port: o.Port, fixed: o.Port != 0,
		program: &redisProgram{home: home, path: program, settings: o.Settings},
	}}
	if err := r.Start(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func (m machine) findRedis() (string, bool) {
	for _, name := range redisNames {
		if dirs := m.find(name); len(dirs) > 0 {
			return filepath.Join(dirs[0], name), true
		}
	}
	return "", false
}

// URL returns the server's address as clients of Redis write it. It stays the
// same over Stop and Start.
func (r *Redis) URL() string { return redisURL(address(r.server.port)) }

// Port returns the TCP port on 127.0.0.1. It stays the same over Stop and Start.
func (r *Redis) Port() int { return r.server.port }

// PID returns the id of the server's process, 0 when it does not run.
func (r *Redis) PID() int { return r.server.pid() }

// Stop ends the server in order (SIGTERM), paused or not, and waits until it is
// gone. It may be called again and does nothing then. A server that does not
// end in time is killed, which is reported as an error.
func (r *Redis) Stop() error { return r.server.stop(step{syscall.SIGTERM, 15 * time.Second}) }

// Kill ends the server like a crash (SIGKILL) and waits until it is gone.
func (r *Redis) Kill() error { return r.server.stop(step{syscall.SIGKILL, killGrace}) }

// Pause makes the server hang (SIGSTOP): connections stay open and are accepted
// by the system, nothing is answered. It is an error when the server is down.
func (r *Redis) Pause() error { return r.server.signal(syscall.SIGSTOP) }

// Resume undoes Pause.
func (r *Redis) Resume() error { return r.server.signal(syscall.SIGCONT) }

// Start starts the server again after Stop or Kill, or after its death, on the
// same folder and port. It does nothing when the server runs.
func (r *Redis) Start(ctx context.Context) error { return r.server.start(ctx) }

func redisURL(address string) string { return "redis://" + address + "/0" }

var redisNames = []string{"redis-server", "valkey-server"}

const redisPIDName = "redis.pid"

// redisProgram is Redis' data folder and how the server is run on it.
type redisProgram struct {
	home     *home
	path     string
	settings map[string]string
}

func (r *redisProgram) dataDir() string { return r.home.path(dataName) }

func (r *redisProgram) prepare(context.Context) error {
	if err := os.Mkdir(r.dataDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return r.home.user.give(r.dataDir())
}

// command runs the server. When the parent dies it is killed: unlike SIGTERM
// that also ends a paused server, and the append-only file has what it answered.
func (r *redisProgram) command(port int) command {
	var args []string
	set := func(name, value string) { args = append(args, "--"+name, value) }
	set("appendonly", "yes")
	set("appendfsync", "everysec")
	set("save", "")
	set("maxmemory-policy", "noeviction")
	for _, name := range slices.Sorted(maps.Keys(r.settings)) {
		set(name, r.settings[name])
	}
	set("bind", loopback)
	set("port", strconv.Itoa(port))
	set("daemonize", "no")
	set("logfile", "")
	set("dir", r.dataDir())
	set("pidfile", filepath.Join(r.dataDir(), redisPIDName))
	return command{
		path: r.path, args: args,
		dir: r.home.dir, user: r.home.user, log: r.home.log("redis"), deathSignal: syscall.SIGKILL,
	}
}

// ready asks the server for its process id as well, since another Redis may
// have taken the port. While it loads its data it refuses PING. A client library
// would log each refused connection.
func (r *redisProgram) ready(ctx context.Context, pid, port int) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", address(port))
	if err != nil {
		return false, nil // not yet: asked again until the caller's context ends
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\nQUIT\r\n"); err != nil {
		return false, nil
	}
	const limit = 64 << 10 // whoever listens there
	answer, _ := io.ReadAll(io.LimitReader(conn, limit))
	lines := strings.Split(string(answer), "\r\n")
	return lines[0] == "+PONG" && slices.Contains(lines, "process_id:"+strconv.Itoa(pid)), nil
}

// orphan trusts the pid file only if that process is a Redis on the port that
// was written down before the start: Redis does not show its folder.
func (r *redisProgram) orphan(ctx context.Context) (int, bool) {
	pid := readNumber(filepath.Join(r.dataDir(), redisPIDName))
	port := readNumber(r.home.path("port"))
	if pid <= 0 || port <= 0 {
		return 0, false
	}
	words := strings.Fields(strings.Join(commandLine(ctx, pid), " "))
	if len(words) == 0 || !slices.Contains(redisNames, filepath.Base(words[0])) {
		return 0, false
	}
	return pid, slices.Contains(words, address(port)) || slices.Contains(words, strconv.Itoa(port))
}

// readNumber returns 0 when the file holds none.
func readNumber(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}
