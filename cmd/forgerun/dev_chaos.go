package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	local "github.com/forgerun/forgerun/internal/stack"
)

const (
	chaosAPIs    = 2
	chaosWorkers = 2
	chaosStart   = 2 * time.Minute // time limit until all processes are ready
)

type chaos struct {
	faults local.Chaos
	asked  string // value of --chaos; "": no faults
	seed   uint64
}

// run runs the roles as child processes and injects faults until ctx ends. At the end, the data of the stores is deleted.
func (c chaos) run(ctx context.Context, cfg Config, environ []string, stdout, stderr io.Writer) error {
	switch {
	case cfg.DatabaseURL != "" || cfg.RedisURL != "":
		return errors.New("dev --chaos injects faults into its own Postgres and Redis: unset FORGERUN_DATABASE_URL and FORGERUN_REDIS_URL")
	case !onLoopback(cfg.HTTPAddr):
		return fmt.Errorf("dev --chaos can listen only on loopback, not on %s", cfg.HTTPAddr)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	starting, cancel := context.WithTimeoutCause(ctx, chaosStart, errors.New("some processes were not ready in time"))
	defer cancel()
	s, err := local.Start(starting, local.Options{
		Forgerun: program, Dir: filepath.Join(cfg.DataDir, "chaos"),
		Listen: cfg.HTTPAddr, APIs: chaosAPIs, Workers: chaosWorkers, Faults: true, Clock: c.faults.MovesClock(),
		Concurrency: cfg.WorkerConcurrency, TimeScale: cfg.TimeScale, Env: chaosEnviron(environ), Log: stderr,
	})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	err = c.disturb(ctx, starting, s, stdout)
	return errors.Join(unlessStopped(ctx, err), s.Close())
}

func (c chaos) disturb(ctx, starting context.Context, s *local.Stack, stdout io.Writer) error {
	id, key, err := local.Register(starting, s.URL)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "\nForgeRun %s is ready, with faults: %s (seed %d).\n\n  API        %s/v1\n"+
		"  Client id  %s\n  API key    %s\n  Docs       %s/docs\n  Logs       %s\n\n"+
		"The data is removed at the end. Stop with Ctrl-C. Each fault is listed when it ends:\n\n",
		version, c.asked, c.seed, s.URL, id, key, s.URL, s.Logs())
	return c.faults.Run(ctx, s, c.seed, func(f local.Fault) {
		line := fmt.Sprintf("%s  %-12s %s", f.At.Format("15:04:05.000"), f.Kind, f.Target)
		if f.Count > 1 {
			line += fmt.Sprintf(", %d connections", f.Count)
		}
		line += fmt.Sprintf(", for %.1f s", f.Until.Sub(f.At).Seconds())
		if f.Err != nil {
			line += ": " + f.Err.Error()
		}
		_, _ = fmt.Fprintln(stdout, line)
	})
}

func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func chaosEnviron(environ []string) map[string]string {
	env := map[string]string{"FORGERUN_TESTBED": "true"}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "FORGERUN_") {
			env[name] = value
		}
	}
	maps.DeleteFunc(env, func(name, _ string) bool {
		return name == "FORGERUN_DATA_DIR" || slices.Contains(local.Addresses, name)
	})
	return env
}
