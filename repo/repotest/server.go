package repotest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/repo"
)

// unsafeButQuick are the settings of the private server: its data is not needed
// after the tests, and autovacuum would only disturb them.
var unsafeButQuick = map[string]string{
	"max_connections": "600", "shared_buffers": "128MB",
	"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
	"wal_level": "minimal", "max_wal_senders": "0",
	"checkpoint_timeout": "1h", "max_wal_size": "4GB", "autovacuum": "off",
}

// server is the server of a test binary. Its database "forgerun" is the template: a database with connections
// cannot be copied, so there are none once it has its schema.
type server struct {
	open bool // Main is in charge of it

	once    sync.Once
	err     error
	servers *stack.Servers
	admin   *pgxpool.Pool // connected to another database
	copying string        // of CREATE DATABASE
}

// start does not follow a test's context: the server outlives the test that
// happens to be the first.
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
	if s.servers, err = stack.Temp(ctx, &stack.ServerOptions{Settings: unsafeButQuick}, nil); err != nil {
		return err
	}
	if err = repo.Migrate(ctx, s.servers.Postgres.URL(), -1); err != nil {
		return err
	}
	if s.admin, err = pgxpool.New(ctx, s.servers.Postgres.URLOf("postgres")); err != nil {
		return err
	}
	// To copy the files takes a third of the time where that needs no write to disk. Before version 15 there is no choice.
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

// clone makes a database from the template and returns its name.
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
