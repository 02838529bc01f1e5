package devstack

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"syscall"
	"time"
)

// PostgresOptions says where and how a private Postgres runs.
type PostgresOptions struct {
	// Dir is the server's folder: the cluster (in "data"), the password of its
	// one role, the log. It is created when missing, and used again when present.
	//
	// Postgres refuses to run as root. A root parent runs it as user "postgres",
	// or "nobody", or as the owner of the files that are there already. When that
	// user cannot reach Dir (below /root, or in a folder made by os.MkdirTemp),
	// the files go to a new folder below /var/lib/forgerun, Dir becomes a symbolic
	// link to it, and a warning says so. Remove deletes such a folder with all it
	// stands for; MkdirTemp makes temporary folders that need no such detour.
	Dir string
	// Port is the TCP port on 127.0.0.1; 0 chooses a free one.
	Port int
	// Settings are configuration parameters, such as max_connections. They are
	// given on the server's command line, so ALTER SYSTEM cannot change them.
	// fsync and synchronous_commit are on unless set here.
	Settings map[string]string
	// Logger gets a line for each start, and for an end that nobody asked for.
	// Nil: none.
	Logger *slog.Logger
}

// StopMode is a way to stop Postgres; the names are those of pg_ctl.
type StopMode int

const (
	// Fast ends all sessions and stops in order.
	Fast StopMode = iota
	// Immediate stops without any order, as a crash does: the next start recovers.
	Immediate
)

// Postgres is a private Postgres server with the empty database "forgerun" and
// a superuser of that name. It asks for a random password, kept in the folder:
// any local user could otherwise run programs through it as its user.
type Postgres struct {
	server  *server
	cluster *cluster
}

// StartPostgres starts the server and returns once it accepts connections. The
// error wraps ErrNotInstalled when this machine has no Postgres server; of a
// server that does not start it holds the last lines of its log. A folder that
// another running stack uses is refused; a server that a killed parent left
// there is stopped first.
func StartPostgres(ctx context.Context, o PostgresOptions) (*Postgres, error) {
	return thisMachine().startPostgres(ctx, o, durable)
}

func (m machine) startPostgres(ctx context.Context, o PostgresOptions, d durability) (*Postgres, error) {
	if o.Dir == "" {
		return nil, errors.New("devstack: PostgresOptions.Dir is empty")
	}
	if err := checkPort(o.Port); err != nil {
		return nil, err
	}
	bins := m.find("postgres", "initdb")
	if len(bins) == 0 {
		return nil, notInstalled("the Postgres server (programs postgres and initdb)", "postgresql", "postgresql@17")
	}
	bin, err := chooseVersion(ctx, bins, filepath.Join(o.Dir, dataName))
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	log := loggerOrNone(o.Logger)
	home, err := openHome(ctx, m, o.Dir, filepath.Join(bin, "postgres"), []string{"postgres", "nobody"}, log)
	if err != nil {
		return nil, fmt.Errorf("devstack: the folder for Postgres: %w", err)
	}
	c := &cluster{home: home, bin: bin, settings: o.Settings, durability: d}
	p := &Postgres{
		cluster: c,
		server:  &server{name: "postgres", home: home, program: c, log: log, port: o.Port, fixed: o.Port != 0},
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// URL returns the connection string of database "forgerun", password included.
// It stays the same over Stop and Start.
func (p *Postgres) URL() string { return p.cluster.url(p.server.port, databaseName) }

// Port returns the TCP port on 127.0.0.1. It stays the same over Stop and Start.
func (p *Postgres) Port() int { return p.server.port }

// PID returns the id of the server's main process, 0 when it does not run.
func (p *Postgres) PID() int { return p.server.pid() }

// Stop ends the server and waits until it is gone. It may be called again and
// does nothing then. A server that does not end in time is killed, which is
// reported as an error.
func (p *Postgres) Stop(mode StopMode) error {
	if mode == Immediate {
		// Postgres itself kills after 5 s what does not follow.
		return p.server.stop(step{syscall.SIGQUIT, killGrace})
	}
	return p.server.stop(step{syscall.SIGINT, 30 * time.Second}, step{syscall.SIGQUIT, killGrace})
}

// Start starts the server again after Stop, or after its death, on the same
// folder and port. It does nothing when the server runs.
func (p *Postgres) Start(ctx context.Context) error { return p.server.start(ctx) }

func (c *cluster) url(port int, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(roleName, c.password),
		Host:     address(port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func loggerOrNone(log *slog.Logger) *slog.Logger {
	if log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return log
}
