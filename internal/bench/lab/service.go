package lab

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/internal/stack"
)

const (
	readyWithin = 20 * time.Second // bounds the start of a process
	stopGrace   = 2 * time.Minute
)

// System is what is measured: an API, and processes that can be started later.
type System struct {
	loadgen.Target
	DB      *Database
	API     *stack.Process
	url     string
	command stack.Command
}

// Phase runs a system on a database of its own while it is used.
func (l *Lab) Phase(ctx context.Context, s Service, use func(System) error) error {
	return l.WithDatabase(ctx, func(d *Database) error { return l.Serve(ctx, d, s, use) })
}

// Serve runs an api process on the database while it is used, for the owner of the
// database's key, or for a new client if there is none. The program brings the schema
// up to its own version.
func (l *Lab) Serve(ctx context.Context, d *Database, s Service, use func(System) error) (err error) {
	sys := System{DB: d, command: stack.Command{
		Path: s.Path, Dir: l.Dir, DeathSignal: syscall.SIGKILL,
		Env: append(os.Environ(),
			"FORGERUN_DATABASE_URL="+d.URL+"&pool_max_conns=24", "FORGERUN_REDIS_URL="+l.Servers.Redis.URL(),
			"FORGERUN_PUBLIC_URL=http://127.0.0.1", "FORGERUN_OPEN_REGISTRATION=true",
			"FORGERUN_RATE_LIMIT_PER_MINUTE=1000000000", "FORGERUN_CLIENT_MAX_ACTIVE=1000000000", "FORGERUN_TIME_SCALE=0",
			"FORGERUN_WORKER_CONCURRENCY="+strconv.Itoa(s.Slots),
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
	sys.API, err = sys.start(ctx, "api", address)
	defer func() { err = errors.Join(err, sys.API.Stop(stopGrace)) }()
	if err != nil {
		return err
	}
	sys.url = "http://" + address
	if d.Key == "" {
		if _, d.Key, err = stack.Register(ctx, sys.url); err != nil {
			return err
		}
	}
	sys.Target = loadgen.Target{URL: sys.url + "/v1/jobs", Key: d.Key}
	return use(sys)
}

// Subscribe registers a client and a webhook for each URL, which gets all events. It returns where the client submits jobs.
func (s System) Subscribe(ctx context.Context, urls ...string) (loadgen.Target, error) {
	_, key, err := stack.Register(ctx, s.url)
	if err != nil {
		return loadgen.Target{}, err
	}
	c, err := client.New(client.Config{URL: s.url, Key: key})
	for _, url := range urls {
		if err == nil {
			_, err = c.CreateWebhook(ctx, client.WebhookRequest{URL: url, Events: []string{"*"}})
		}
	}
	return loadgen.Target{URL: s.URL, Key: key}, err
}

// WithWorker runs a worker process while it is used.
func (s System) WithWorker(ctx context.Context, use func(*stack.Process) error) error {
	return s.WithRole(ctx, "worker", use)
}

// WithRole runs a worker or a deliverer process while it is used.
func (s System) WithRole(ctx context.Context, role string, use func(*stack.Process) error) error {
	p, err := s.start(ctx, role, "")
	if err == nil {
		err = use(p)
	}
	return errors.Join(err, p.Stop(stopGrace))
}

// role is the command of a process of the service, which has a log of its own.
func (s System) role(name string) stack.Command {
	c := s.command
	c.Args, c.Log = []string{name}, filepath.Join(c.Dir, name+".log")
	return c
}

// start starts a process at an address of the API and waits until it is ready.
func (s System) start(ctx context.Context, role, api string) (*stack.Process, error) {
	admin, err := stack.FreeAddress()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	p, err := stack.StartRole(ctx, s.role(role), role, api, admin, stopGrace)
	if err != nil {
		return p, fmt.Errorf("the %s did not get ready: %w", role, err)
	}
	return p, nil
}
