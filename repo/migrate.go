package repo

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/forgerun/forgerun/migrations"
)

// Migrate brings the schema of the database to the given version, up or down;
// version -1 is the newest one. An advisory lock makes processes that start
// together take turns.
func Migrate(ctx context.Context, url string, version int64) error {
	db, err := openSQL(url)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60), lock.WithUnlockTimeout(1, 60))
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if version < 0 {
		version = schemaVersion()
	}
	current, err := provider.GetDBVersion(ctx)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if current > version {
		_, err = provider.DownTo(ctx, version)
	} else {
		_, err = provider.UpTo(ctx, version)
	}
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	return nil
}

func openSQL(url string) (*sql.DB, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("database URL: %w", err)
	}
	return stdlib.OpenDB(*cfg.ConnConfig), nil
}

// schemaVersion is the number of the newest migration.
var schemaVersion = sync.OnceValue(func() int64 {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		panic(err) // the pattern above is wrong
	}
	var newest int64
	for _, f := range files {
		number, _, _ := strings.Cut(f, "_")
		if n, err := strconv.ParseInt(number, 10, 64); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
})
