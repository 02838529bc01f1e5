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

// Migrate brings the schema of the database to the given version, up or down. With version -1, it applies all migrations that this program
// knows, and never migrates down. An advisory lock lets only one process migrate at a time.
//
// After a restore from a dump into another server, the events contain transaction ids (tx) of the old server. Migrate replaces them, see
// renumberEvents.
func Migrate(ctx context.Context, url string, version int64) error {
	db, err := openSQL(url)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithSessionLocker(migrationLock{}))
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

// checkMigrator returns an error if the user lacks a privilege for the migration. The error names this privilege.
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

// While ALTER TABLE waits for running queries on a table, it blocks all later queries on this table. So the lock timeout is short. After a
// lock timeout, the migration is tried again.
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

// migrationLock lets only one process migrate at a time. It polls: a session that waits in pg_advisory_lock holds a snapshot, and CREATE
// INDEX CONCURRENTLY would wait for this snapshot. Goose's own locker polls too rarely, at most once a second.
type migrationLock struct{}

func (migrationLock) SessionLock(ctx context.Context, conn *sql.Conn) error {
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

func (migrationLock) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, `SELECT pg_advisory_unlock($1::bigint # hashtext(current_schema()))`, lock.DefaultLockID)
	return err
}

func openSQL(url string) (*sql.DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres %w", ErrBadURL) // the driver's error would quote the URL and its password
	}
	pg.SetOnConnect(&cfg.ConnConfig.Config, map[string]string{"lock_timeout": pg.Milliseconds(migrationLockTimeout)})
	return stdlib.OpenDB(*cfg.ConnConfig), nil
}

var schemaVersion = sync.OnceValue(func() int64 {
	files, _ := fs.Glob(migrations.FS, "*.sql") // sorted by Glob, which fails only for an invalid pattern
	number, _, _ := strings.Cut(files[len(files)-1], "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		panic(err) // the file's name has no number
	}
	return version
})

// renumberEvents repairs a database that was restored from a dump into another server. Its events can have transaction ids (tx) that the
// new server has not reached yet. ClientEvents would not return these events, because it returns only events of finished transactions. New
// events would get positions before these events, so clients would miss the new events. renumberEvents sets the tx of all events to 1,
// which is lower than the id of any new transaction. A job's events keep their order, because events with the same tx are ordered by seq. A
// position that a client stored before the restore would be too far ahead, so the client would skip events. Therefore renumberEvents
// replaces the key that signs positions. This makes all stored positions and cursors invalid.
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
	// Every transaction that writes events also writes to one of these tables. So the lock keeps out all such transactions.
	if _, err := tx.ExecContext(ctx, `LOCK TABLE jobs, client_events IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		return err
	}
	if future, err := hasFutureTx(ctx, tx); err != nil || !future { // another process has already repaired the events
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

// hasFutureTx reports whether an event has a tx that this server has not assigned yet.
func hasFutureTx(ctx context.Context, db interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}) (future bool, err error) {
	return future, db.QueryRowContext(ctx, statement("anyFutureTx")).Scan(&future)
}
