package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/forgerun/forgerun/migrations"
	"github.com/forgerun/forgerun/repo/pg"
)

// Migrate brings the schema of the database to the given version, up or down. Version -1 means the newest version that this program knows,
// and never goes down, even if a newer program has migrated further. An advisory lock makes processes that start together take turns.
//
// A database that was restored from a dump into another server has the transaction ids (tx) of the old server in its events. Migrate adapts
// them to the new server's transaction numbers, see renumberEvents.
func Migrate(ctx context.Context, url string, version int64) error {
	db, err := openSQL(url)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithSessionLocker(turns{}))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if err := checkMigrator(ctx, db); err != nil {
		return err
	}
	if err := refuseFormerSchema(ctx, db); err != nil {
		return err
	}
	if err := unlessLocked(ctx, func() error { return migrateTo(ctx, provider, version) }); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if err := unlessLocked(ctx, func() error { return renumberEvents(ctx, db, provider) }); err != nil {
		return fmt.Errorf("give restored events new transaction ids: %w", err)
	}
	return nil
}

// formerSchema is the error for a database with a schema from before the first release, which has other version numbers.
const formerSchema = "database was made by a program before version 0.1.0 and cannot be migrated: use a new, empty database"

func refuseFormerSchema(ctx context.Context, db *sql.DB) error {
	var version int64
	var former bool
	err := db.QueryRowContext(ctx, statement("schemaVersion")).Scan(&version, &former)
	switch {
	case pg.HasState(err, pg.StateUndefinedTable): // nothing was migrated yet
		return nil
	case err != nil:
		return fmt.Errorf("migrations: %w", err)
	case former:
		return errors.New("the " + formerSchema)
	}
	return nil
}

// checkMigrator returns an error that names the missing privileges, before anything is changed.
func checkMigrator(ctx context.Context, db *sql.DB) error {
	var lacks string
	if err := db.QueryRowContext(ctx, statement("migratorLacks")).Scan(&lacks); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if lacks != "" {
		return errors.New("migrations: the user of FORGERUN_DATABASE_URL lacks " + lacks + ": nothing was changed")
	}
	return nil
}

// A change of a table waits for all its readers. Later readers, such as the running services, wait behind it. So the lock timeout is
// short, and the change is repeated for some time.
const (
	migrationLockTimeout = 500 * time.Millisecond // well below the services' own lock timeout
	migrationPause       = time.Second
	migrationTimeout     = 2 * time.Minute
)

func unlessLocked(ctx context.Context, change func() error) error {
	for limit := time.Now().Add(migrationTimeout); ; {
		err := change()
		switch {
		case !pg.HasState(err, pg.StateLockTimeout):
			return err
		case time.Now().After(limit):
			return fmt.Errorf("a table was in use for too long (end the program that reads it, such as a dump, and try again): %w", err)
		}
		select {
		case <-time.After(migrationPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func migrateTo(ctx context.Context, provider *goose.Provider, version int64) error {
	if version < 0 {
		_, err := provider.Up(ctx)
		return err
	}
	current, err := provider.GetDBVersion(ctx)
	switch {
	case err != nil, current == version:
	case current > version:
		_, err = provider.DownTo(ctx, version)
	default:
		_, err = provider.UpTo(ctx, version)
	}
	return err
}

const (
	turnWait = time.Minute
	turnPoll = 20 * time.Millisecond
)

// turns lets one process migrate at a time. It polls, because a session that blocks in pg_advisory_lock holds a snapshot, which CREATE
// INDEX CONCURRENTLY would wait for. Goose's own locker polls at most once a second.
type turns struct{}

// SessionLock waits for the advisory lock.
func (turns) SessionLock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeoutCause(ctx, turnWait, errors.New("another process has been migrating for too long"))
	defer cancel()
	for {
		var mine bool
		err := conn.QueryRowContext(ctx, `SELECT pg_try_advisory_lock($1::bigint # hashtext(current_schema()))`, lock.DefaultLockID).Scan(&mine)
		if err != nil || mine {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(turnPoll):
		}
	}
}

// SessionUnlock releases the advisory lock.
func (turns) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1::bigint # hashtext(current_schema()))`, lock.DefaultLockID)
	return err
}

func openSQL(url string) (*sql.DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres %w", ErrBadURL) // not the driver's error, which quotes the address
	}
	pg.SetOnConnect(&cfg.ConnConfig.Config, map[string]string{"lock_timeout": pg.Milliseconds(migrationLockTimeout)})
	return stdlib.OpenDB(*cfg.ConnConfig), nil
}

var schemaVersion = sync.OnceValue(func() int64 {
	files, _ := fs.Glob(migrations.FS, "*.sql") // in order; the pattern is valid
	number, _, _ := strings.Cut(files[len(files)-1], "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		panic(err) // the file's name has no number
	}
	return version
})

// renumberEvents repairs a database that was restored from a dump into another server. The new server numbers transactions independently,
// so the transaction ids (tx) of old events can be in its future. ClientEvents would hide the old events for a long time. New events would
// get earlier positions, so clients would miss them. renumberEvents gives all old events the same tx, which precedes every transaction. A
// job's events keep their order, because their seq decides among equal tx. A position that a client stored before would later skip events.
// So renumberEvents replaces the signing key of positions. This invalidates all stored positions and cursors.
func renumberEvents(ctx context.Context, db *sql.DB, provider *goose.Provider) error {
	version, err := provider.GetDBVersion(ctx)
	if err != nil || version < schemaVersion() { // some tables are missing
		return err
	}
	if future, err := hasFutureTx(ctx, db); err != nil || !future {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	// This keeps out all transactions that write events, because each of them also writes one of these tables.
	if _, err := tx.ExecContext(ctx, `LOCK TABLE jobs, client_events IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	if future, err := hasFutureTx(ctx, tx); err != nil || !future { // another process has done it
		return err
	}
	if _, err := tx.ExecContext(ctx, statement("renumberEvents")); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	slog.Warn("the database comes from another server: the positions of events in clients' streams were reset, " +
		"and positions that clients stored are no longer valid")
	return nil
}

// hasFutureTx reports whether the tx of an event is an id that no transaction of this server can have.
func hasFutureTx(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (future bool, err error) {
	return future, db.QueryRowContext(ctx, statement("anyFutureTx")).Scan(&future)
}
