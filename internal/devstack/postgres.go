package devstack

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"syscall"
	"time"
)

// StopMode is a way to stop Postgres; the names are those of pg_ctl.
type StopMode int

const (
	// Fast ends all sessions and stops in order.
	Fast StopMode = iota
	// Immediate stops without any order, as a crash does: the next start recovers.
	Immediate
)

// Postgres is a private server with the empty database "forgerun" and a superuser of that name. It asks for a random
// password, kept in the folder: any local user could otherwise run programs through it.
type Postgres struct {
	*server
	cluster *cluster
}

// StartPostgres starts the server and returns once it accepts connections. The error wraps ErrNotInstalled when this
// machine has no Postgres; of a server that does not start it holds the last lines of its log. A folder in use by
// another stack is refused; a server that a killed parent left there is stopped first.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	return thisMachine().startPostgres(ctx, o)
}

func (m machine) startPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	m.programDirs = append(slices.Clip(m.programDirs), o.Programs)
	bins := m.find("postgres", "initdb")
	if len(bins) == 0 {
		return nil, m.notInstalled("the Postgres server (programs postgres and initdb)",
			installation{debian: "postgresql", fedora: "postgresql-server", homebrew: "postgresql@17"})
	}
	bin, err := chooseVersion(ctx, bins, filepath.Join(o.Dir, dataName))
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	s, err := m.newServer(ctx, "postgres", o, filepath.Join(bin, "postgres"), []string{"postgres", "nobody"})
	if err != nil {
		return nil, err
	}
	c := &cluster{home: s.home, bin: bin, settings: o.Settings, throwaway: o.throwaway}
	s.program = c
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return &Postgres{server: s, cluster: c}, nil
}

// URL returns the connection string of database "forgerun", password included, the same over Stop and Start.
func (p *Postgres) URL() string { return p.cluster.url(p.port, databaseName) }

// Stop ends the server and waits until it is gone. It does nothing when called again. A server that does not end in
// time is killed, which is an error.
func (p *Postgres) Stop(mode StopMode) error {
	if mode == Immediate {
		return p.stop(step(syscall.SIGQUIT, quitGrace))
	}
	return p.stop(step(syscall.SIGINT, 30*time.Second), step(syscall.SIGQUIT, quitGrace))
}

func (c *cluster) url(port int, database string) string {
	return "postgres://" + url.UserPassword(roleName, c.password).String() + "@" + address(port) + "/" + database + "?sslmode=disable"
}
