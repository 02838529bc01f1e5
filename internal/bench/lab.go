package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"

	"github.com/forgerun/forgerun/internal/stack"
)

const (
	clients     = 64              // that submit at once
	quiet       = 2 * time.Second // for a system to come to rest
	readyWithin = 20 * time.Second
	stopGrace   = 2 * time.Minute
)

// lab has the servers and the programs under test.
type lab struct {
	options
	servers  *stack.Servers
	dir      string    // temporary
	services []service // of this checkout, and the one to compare with
}

// service is a program of the service.
type service struct {
	name, path string
	slots      int // concurrent jobs in a worker process
}

// newLab builds the service and starts the servers.
func newLab(ctx context.Context, o options) (*lab, error) {
	dir, err := os.MkdirTemp("", "forgerun-bench-")
	if err != nil {
		return nil, err
	}
	l := &lab{options: o, dir: dir, services: []service{{"ForgeRun", filepath.Join(dir, "forgerun"), 128}}}
	if o.against != "" {
		path, _ := filepath.Abs(o.against) // the folder exists
		l.services = append(l.services, service{o.against, path, 128})
	}
	fmt.Println("building, starting Postgres and Redis (fsync, synchronous_commit and AOF on)")
	if err = build(ctx, ".", l.services[0].path, "github.com/forgerun/forgerun/cmd/forgerun"); err == nil {
		l.servers, err = stack.Temp(ctx, &stack.ServerOptions{
			Settings: map[string]string{"max_connections": "200", "shared_buffers": "512MB", "max_wal_size": "8GB"},
		}, &stack.ServerOptions{})
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return l, nil
}

func (l *lab) close() error {
	return errors.Join(l.servers.Close(), os.RemoveAll(l.dir)) //nolint:gosec // newLab made the folder
}

// build builds a program of the module in a folder.
func build(ctx context.Context, module, path, pkg string) error {
	c := exec.CommandContext(ctx, "go", "build", "-o", path, pkg)
	c.Dir = module
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w: %s", pkg, err, out)
	}
	return nil
}

// description names the time, the commit and the machine.
func description(ctx context.Context) string {
	commit, _ := exec.CommandContext(ctx, "git", "--no-optional-locks", "describe", "--always", "--dirty=-changed").Output()
	model := runtime.GOARCH
	proc, _ := procfs.NewDefaultFS()
	if cpus, _ := proc.CPUInfo(); len(cpus) > 0 {
		model = cpus[0].ModelName
	}
	return fmt.Sprintf("%s; commit %s; %d cores, %s; %s", time.Now().Format("2006-01-02 15:04 MST"),
		strings.TrimSpace(string(commit)), runtime.NumCPU(), model, runtime.Version())
}

// database is a new database in Postgres.
type database struct {
	url  string
	key  string // API key of the client that owns its jobs; "": none yet
	conn *pgx.Conn
}

// withDatabase makes a database and empties Redis for the time of use.
func (l *lab) withDatabase(ctx context.Context, use func(*database) error) error {
	name := "bench_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	admin, err := pgx.Connect(ctx, l.servers.Postgres.URL())
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close(context.WithoutCancel(ctx)) }()
	_, err = admin.Exec(ctx, "CREATE DATABASE "+name)
	if err = errors.Join(err, l.servers.Redis.Do(ctx, "FLUSHALL")); err != nil {
		return err
	}
	d := &database{url: l.servers.Postgres.URLOf(name)}
	if d.conn, err = pgx.Connect(ctx, d.url); err == nil {
		err = errors.Join(use(d), d.conn.Close(context.WithoutCancel(ctx)))
	}
	_, dropped := admin.Exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	return errors.Join(err, dropped)
}

// number reads one number.
func (d *database) number(ctx context.Context, sql string, args ...any) (n float64, err error) {
	err = d.conn.QueryRow(ctx, "SELECT ("+sql+")::float8", args...).Scan(&n)
	return n, err
}

// allFinished waits until that many jobs created since a moment have reports. It gives up after a minute without a change. The service
// takes its times from Postgres and may be a little behind, so nothing may be created shortly before the moment.
func (d *database) allFinished(ctx context.Context, since time.Time, accepted int) error {
	since = since.Add(-quiet / 2)
	var before float64
	for changed := time.Now(); ; {
		asked := time.Now()
		finished, err := d.number(ctx, `SELECT count(*) FROM jobs JOIN reports USING (job_id)
			WHERE jobs.finished_at >= $1 AND jobs.created_at >= $1`, since)
		switch {
		case err != nil || int(finished) == accepted:
			return err
		case int(finished) > accepted || time.Since(changed) > time.Minute:
			return fmt.Errorf("%.0f of %d accepted jobs have finished", finished, accepted)
		case finished > before:
			before, changed = finished, asked
		}
		// A look must not cost the system much.
		stack.Sleep(ctx, max(20*time.Millisecond, 20*time.Since(asked)))
	}
}

// system is a measured system: an API, and processes that can be started later.
type system struct {
	target
	lab     *lab
	db      *database
	root    string // URL
	command stack.Command
	running map[string]*stack.Process // by role
}

// phase runs a system on a new database for the time of use.
func (l *lab) phase(ctx context.Context, s service, use func(system) error) error {
	return l.withDatabase(ctx, func(d *database) error { return l.serve(ctx, d, s, use) })
}

// serve runs an api process on the database for the time of use, for the database's client or a new one. The program brings the
// schema up to its own version.
func (l *lab) serve(ctx context.Context, d *database, s service, use func(system) error) (err error) {
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
	if err := stack.RunProcess(ctx, sys.role("migrate")); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	address, err := stack.FreeAddress()
	if err != nil {
		return err
	}
	sys.root = "http://" + address
	return sys.with(ctx, "api", address, func() (err error) {
		if d.key == "" {
			if _, d.key, err = stack.Register(ctx, sys.root); err != nil {
				return err
			}
		}
		sys.target = target{url: sys.root + "/v1/jobs", key: d.key, body: plainJob}
		return use(sys)
	})
}

// withWorker runs a worker process for the time of use.
func (s system) withWorker(ctx context.Context, use func() error) error {
	return s.with(ctx, "worker", "", use)
}

// with runs a process of the service for the time of use.
func (s system) with(ctx context.Context, role, api string, use func() error) error {
	admin, err := stack.FreeAddress()
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	p, err := stack.StartRole(starting, s.role(role), role, api, admin, stopGrace)
	if err != nil {
		return fmt.Errorf("the %s did not get ready: %w", role, err)
	}
	s.running[role] = p
	defer delete(s.running, role)
	return errors.Join(use(), p.Stop(stopGrace))
}

// role is the command of a process, with its own log.
func (s system) role(name string) stack.Command {
	c := s.command
	c.Args, c.Log = []string{name}, filepath.Join(c.Dir, name+".log")
	return c
}
