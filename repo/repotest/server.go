package repotest

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/repo"
)

// Environment variables by which Shared passes its results to the test binaries.
const (
	templateVariable = "FORGERUN_TEST_POSTGRES" // URL of the template database
	clusterVariable  = "FORGERUN_TEST_CLUSTER"  // folder of a stopped server with the newest schema
)

// unsafeButQuick has the settings of the shared server. Autovacuum would only disturb the tests.
var unsafeButQuick = map[string]string{
	"max_connections": "1000", "shared_buffers": "128MB",
	"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
	"wal_level": "minimal", "max_wal_senders": "0",
	"checkpoint_timeout": "1h", "max_wal_size": "1GB", "autovacuum": "off", "jit": "off",
}

// Shared starts a server for all packages of a run. The packages find the server through the environment variables that Shared returns.
func Shared(ctx context.Context) (variables []string, stop func() error, err error) {
	made, err := migrated(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err = made.Postgres.Stop(); err != nil {
		return nil, nil, errors.Join(err, made.Close())
	}
	shared, err := stack.Temp(ctx, &stack.ServerOptions{Settings: unsafeButQuick, Cluster: made.Postgres.Dir()}, nil)
	if err != nil {
		return nil, nil, errors.Join(err, made.Close())
	}
	variables = []string{templateVariable + "=" + shared.Postgres.URL(), clusterVariable + "=" + made.Postgres.Dir()}
	return variables, func() error { return errors.Join(shared.Close(), made.Close()) }, nil
}

func migrated(ctx context.Context) (*stack.Servers, error) {
	// Tests connect thousands of times. md5 is faster than SCRAM, which hashes the password 4096 times on both sides.
	servers, err := stack.Temp(ctx, &stack.ServerOptions{Settings: unsafeButQuick, Auth: "md5"}, nil)
	if err != nil {
		return nil, err
	}
	if err = repo.Migrate(ctx, servers.Postgres.URL(), -1); err != nil {
		return nil, errors.Join(err, servers.Close())
	}
	return servers, nil
}

// The database "forgerun" is the template of all others. Postgres cannot copy a database that has connections. So all connections to the
// template are closed after its migration.
type server struct {
	open bool

	once     sync.Once
	err      error
	servers  *stack.Servers
	template *url.URL
	admin    *pgxpool.Pool // connected to "postgres", because the template must have no connections
	copying  string        // option of CREATE DATABASE
}

// start uses the background context, because the server outlives the test that starts it.
func (s *server) start() error {
	s.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		s.err = s.doStart(ctx)
	})
	return s.err
}

func (s *server) doStart(ctx context.Context) (err error) {
	if !s.open {
		return errors.New("repotest: TestMain must call repotest.Main")
	}
	template := os.Getenv(templateVariable)
	if template == "" {
		if s.servers, err = migrated(ctx); err != nil {
			return err
		}
		template = s.servers.Postgres.URL()
	}
	if s.template, err = url.Parse(template); err != nil {
		return err
	}
	if s.admin, err = pgxpool.New(ctx, s.urlOf("postgres")); err != nil {
		return err
	}
	// FILE_COPY is three times as fast as the default if nothing is flushed to disk. Postgres before version 15 does not have this option.
	return s.admin.QueryRow(ctx,
		`SELECT CASE WHEN current_setting('server_version_num')::int >= 150000 THEN 'STRATEGY FILE_COPY' ELSE '' END`).Scan(&s.copying)
}

func (s *server) stop() error {
	if s.admin != nil {
		s.admin.Close()
	}
	if s.servers != nil {
		return s.servers.Close()
	}
	return nil
}

func (s *server) urlOf(database string) string {
	u := *s.template
	u.Path = "/" + database
	return u.String()
}

func (s *server) clone(ctx context.Context) (name string, err error) {
	if err := s.start(); err != nil {
		return "", err
	}
	name = "forgerun_test_" + strings.ToLower(rand.Text())
	_, err = s.admin.Exec(ctx, `CREATE DATABASE `+quote(name)+` `+s.copying+` TEMPLATE forgerun`)
	return name, err
}

func (s *server) drop(ctx context.Context, name string) error {
	_, err := s.admin.Exec(ctx, `DROP DATABASE `+quote(name)+` WITH (FORCE)`)
	return err
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }
