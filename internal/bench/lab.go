package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/internal/stack"
)

const (
	clients     = 64              // concurrent clients
	quiet       = 2 * time.Second // time for a system to become idle
	readyWithin = 20 * time.Second
	stopGrace   = 2 * time.Minute
)

// lab has the servers and the programs under test. A failure ends the experiment: the function check panics, and the function attempt
// recovers and returns the error.
type lab struct {
	options
	ctx      context.Context
	servers  *stack.Servers
	dir      string         // temporary folder
	services []service      // the build of this checkout and, with -against, another build
	ends     []func() error // cleanup functions, called by attempt in reverse order
	lines    [][]string     // rows of the table of results
}

// service is one build of the forgerun program.
type service struct {
	name, path string
	slots      int // concurrent jobs in a worker process
}

type failure struct{ error }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func (l *lab) attempt(do func()) (err error) {
	running := len(l.ends)
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case failure:
			err = failed.error
		default:
			panic(failed)
		}
		for _, end := range slices.Backward(l.ends[running:]) {
			err = errors.Join(err, end())
		}
		l.ends = l.ends[:running]
	}()
	do()
	return nil
}

func (l *lab) atEnd(end func() error) { l.ends = append(l.ends, end) }

func (l *lab) open() {
	l.dir = must(os.MkdirTemp("", "forgerun-bench-"))
	l.atEnd(func() error { return os.RemoveAll(l.dir) })
	fmt.Println("building, starting Postgres and Redis (fsync, synchronous_commit and AOF on)")
	l.services = []service{{"ForgeRun", l.build(".", "github.com/forgerun/forgerun/cmd/forgerun"), 128}}
	if l.against != "" {
		l.services = append(l.services, service{l.against, must(filepath.Abs(l.against)), 128})
	}
	l.servers = must(stack.Temp(l.ctx, &stack.ServerOptions{
		Settings: map[string]string{"max_connections": "200", "shared_buffers": "512MB", "max_wal_size": "8GB"},
	}, &stack.ServerOptions{}))
	l.atEnd(l.servers.Close)
}

func (l *lab) build(module, pkg string) (path string) {
	path = filepath.Join(l.dir, "program-of-"+filepath.Base(module))
	c := exec.CommandContext(l.ctx, "go", "build", "-o", path, pkg)
	c.Dir = module
	if out, err := c.CombinedOutput(); err != nil {
		check(fmt.Errorf("go build %s: %w: %s", pkg, err, out))
	}
	return path
}

type database struct {
	lab  *lab
	url  string
	key  string // API key of the client that owns the jobs; "": no client yet
	conn *pgx.Conn
}

// database makes a database and empties Redis.
func (l *lab) database() *database {
	name, lasting := "bench_"+strings.ReplaceAll(uuid.NewString(), "-", ""), context.WithoutCancel(l.ctx)
	admin := must(pgx.Connect(l.ctx, l.servers.Postgres.URL()))
	l.atEnd(func() error { return admin.Close(lasting) })
	must(admin.Exec(l.ctx, "CREATE DATABASE "+name))
	l.atEnd(func() error {
		_, err := admin.Exec(lasting, "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	})
	check(l.servers.Redis.Do(l.ctx, "FLUSHALL"))
	d := &database{lab: l, url: l.servers.Postgres.URLOf(name)}
	d.conn = must(pgx.Connect(l.ctx, d.url))
	l.atEnd(func() error { return d.conn.Close(lasting) })
	return d
}

func (d *database) number(sql string, args ...any) (n float64) {
	check(d.conn.QueryRow(d.lab.ctx, "SELECT ("+sql+")::float8", args...).Scan(&n))
	return n
}

// awaitFinished waits until the number of jobs with a report is `accepted`. It fails after a minute without a new report. It counts jobs
// created after `since` or up to one second earlier, because Postgres' clock may lag. So the caller must create no other jobs in that
// second.
func (d *database) awaitFinished(since time.Time, accepted int) {
	since = since.Add(-quiet / 2)
	var before float64
	for changed := time.Now(); ; {
		asked := time.Now()
		finished := d.number(`SELECT count(*) FROM jobs JOIN reports USING (job_id)
			WHERE jobs.finished_at >= $1 AND jobs.created_at >= $1`, since)
		switch {
		case int(finished) == accepted:
			return
		case int(finished) > accepted || time.Since(changed) > time.Minute:
			check(fmt.Errorf("%.0f of %d accepted jobs have finished", finished, accepted))
		case finished > before:
			before, changed = finished, asked
		}
		d.lab.sleep(max(20*time.Millisecond, 20*time.Since(asked))) // polling must not load the system
	}
}

func (l *lab) sleep(d time.Duration) {
	stack.Sleep(l.ctx, d)
	check(l.ctx.Err())
}

// system is a running service under measurement: an api process, and processes that can be started later.
type system struct {
	target
	*lab
	db      *database
	root    string // URL
	command stack.Command
	running map[string]*stack.Process // by role
}

func (l *lab) phase(s service, use func(system)) { l.serve(nil, s, use) }

// serve runs an api process on the database `d` while `use` runs. If `d` is nil, it makes a new database. The process migrates the schema.
func (l *lab) serve(d *database, s service, use func(system)) {
	check(l.attempt(func() {
		if d == nil {
			d = l.database()
		}
		sys := system{lab: l, db: d, running: map[string]*stack.Process{}, command: stack.Command{
			Path: s.path, Dir: l.dir, DeathSignal: syscall.SIGKILL,
			Env: append(os.Environ(),
				"FORGERUN_DATABASE_URL="+d.url+"&pool_max_conns=24", "FORGERUN_REDIS_URL="+l.servers.Redis.URL(),
				"FORGERUN_PUBLIC_URL=http://127.0.0.1", "FORGERUN_OPEN_REGISTRATION=true",
				"FORGERUN_RATE_LIMIT_PER_MINUTE=1000000000", "FORGERUN_CLIENT_MAX_ACTIVE=1000000000", "FORGERUN_TIME_SCALE=0",
				"FORGERUN_WORKER_CONCURRENCY="+strconv.Itoa(s.slots),
				"FORGERUN_WEBHOOK_ALLOW_PRIVATE=true", "FORGERUN_WEBHOOK_CLIENT_RATE=1000000000", "FORGERUN_WEBHOOK_TIMEOUT=2s",
				"FORGERUN_MASTER_KEY="+base64.StdEncoding.EncodeToString(make([]byte, 32))),
		}}
		check(stack.RunProcess(l.ctx, sys.role("migrate")))
		address := must(stack.FreeAddress())
		sys.root = "http://" + address
		sys.start("api", address)
		if d.key == "" {
			_, key, err := stack.Register(l.ctx, sys.root)
			check(err)
			d.key = key
		}
		sys.target = target{url: sys.root + "/v1/jobs", key: d.key, body: plainJob}
		use(sys)
	}))
}

// Calling stop again does nothing.
func (s system) start(role, api string) (stop func() error) {
	admin := must(stack.FreeAddress())
	starting, cancel := context.WithTimeout(s.ctx, readyWithin)
	defer cancel()
	p, err := stack.StartRole(starting, s.role(role), role, api, admin, stopGrace)
	if err != nil {
		check(fmt.Errorf("the %s did not get ready: %w", role, err))
	}
	s.running[role] = p
	stop = func() error {
		delete(s.running, role)
		return p.Stop(stopGrace)
	}
	s.atEnd(stop)
	return stop
}

func (s system) role(name string) stack.Command {
	c := s.command
	c.Args, c.Log = []string{name}, filepath.Join(c.Dir, name+".log")
	return c
}
