package repotest

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/migrations"
	"github.com/forgerun/forgerun/repo"
)

// urlVariable names a server to use instead of a private one.
const urlVariable = "FORGERUN_TEST_DATABASE_URL"

// templateLock is the advisory lock under which processes make and clone
// templates: a database cannot be cloned while there are connections to it.
const templateLock = 7_305_437_201

// unsafeButQuick are the settings of the private server: its data is not needed
// after the tests, and autovacuum would only disturb them.
var unsafeButQuick = map[string]string{
	"max_connections": "600", "shared_buffers": "128MB",
	"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off",
	"wal_level": "minimal", "max_wal_senders": "0",
	"checkpoint_timeout": "1h", "max_wal_size": "4GB", "autovacuum": "off",
}

// server is the server of a test binary.
type server struct {
	open bool // Main is in charge of it

	once     sync.Once
	err      error
	servers  *stack.Servers // nil: the server of urlVariable
	url      string
	admin    *pgxpool.Pool
	template string
	strategy string // of CREATE DATABASE

	turn sync.Mutex // one goroutine makes or clones a template, and holds one connection for it
}

func (s *server) start() error {
	s.once.Do(func() { s.err = s.doStart() })
	return s.err
}

// doStart does not follow a test's context: the server outlives the test that
// happens to be the first.
func (s *server) doStart() error {
	if !s.open {
		return errors.New("repotest: TestMain must call repotest.Main")
	}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if s.url == "" {
		s.url = os.Getenv(urlVariable)
	}
	if s.url == "" {
		servers, err := stack.Temp(ctx, &stack.ServerOptions{Settings: unsafeButQuick}, nil)
		if err != nil {
			return err
		}
		s.servers, s.url = servers, servers.Postgres.URL()
	}
	var err error
	if s.admin, err = pgxpool.New(ctx, s.url); err != nil {
		return err
	}
	if s.template, err = templateName(); err != nil {
		return err
	}
	if s.strategy, err = s.quickestStrategy(ctx); err != nil {
		return err
	}
	return s.locked(ctx, s.ensureTemplate)
}

// quickestStrategy copies files where that needs no write to disk: it takes a
// third of the time. A durable server would do a checkpoint for each copy.
// Before version 15 there is no choice.
func (s *server) quickestStrategy(ctx context.Context) (string, error) {
	var version int
	err := s.admin.QueryRow(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version)
	if err != nil || s.servers == nil || version < 150000 {
		return "", err
	}
	return "STRATEGY FILE_COPY ", nil
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

// templateName depends on the schema, so that a shared server never offers a
// template of another version.
func templateName() (string, error) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range files {
		text, err := fs.ReadFile(migrations.FS, name)
		if err != nil {
			return "", err
		}
		sum.Write([]byte(name))
		sum.Write(text)
	}
	return "forgerun_template_" + hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// ensureTemplate makes the template under another name and renames it when it
// is complete: one that exists is a whole one.
func (s *server) ensureTemplate(ctx context.Context, conn *pgxpool.Conn) error {
	var exists bool
	err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, s.template).Scan(&exists)
	if err != nil || exists {
		return err
	}
	draft := s.template + "_draft"
	if _, err := conn.Exec(ctx, `DROP DATABASE IF EXISTS `+quote(draft)+` WITH (FORCE)`); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `CREATE DATABASE `+quote(draft)+` TEMPLATE template0`); err != nil {
		return err
	}
	draftURL, err := withDatabase(s.url, draft)
	if err != nil {
		return err
	}
	if err := repo.Migrate(ctx, draftURL, -1); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `ALTER DATABASE `+quote(draft)+` ALLOW_CONNECTIONS false`); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `ALTER DATABASE `+quote(draft)+` RENAME TO `+quote(s.template))
	return err
}

// clone makes a database from the template and returns its URL.
func (s *server) clone(ctx context.Context) (string, error) {
	if err := s.start(); err != nil {
		return "", err
	}
	name := "forgerun_test_" + strings.ToLower(rand.Text())
	err := s.locked(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `CREATE DATABASE `+quote(name)+` `+s.strategy+`TEMPLATE `+quote(s.template))
		return err
	})
	if err != nil {
		return "", err
	}
	return withDatabase(s.url, name)
}

func (s *server) drop(ctx context.Context, database string) error {
	u, err := url.Parse(database)
	if err != nil {
		return err
	}
	_, err = s.admin.Exec(ctx, `DROP DATABASE `+quote(strings.TrimPrefix(u.Path, "/"))+` WITH (FORCE)`)
	return err
}

// locked runs f while no other process makes or clones a template. The lock ends
// with the session, whatever becomes of this process.
func (s *server) locked(ctx context.Context, f func(context.Context, *pgxpool.Conn) error) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	return s.admin.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock($1)`, int64(templateLock)); err != nil {
			return err
		}
		err := f(ctx, conn)
		_, unlockErr := conn.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(templateLock))
		return errors.Join(err, unlockErr)
	})
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func withDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || !strings.HasPrefix(u.Scheme, "postgres") {
		return "", errors.New("repotest: " + urlVariable + " must be a postgres:// URL")
	}
	u.Path = "/" + name
	return u.String(), nil
}
