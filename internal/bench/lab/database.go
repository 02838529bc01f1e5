package lab

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/forgerun/forgerun/repo"
)

// Database is a fresh, migrated database and an empty Redis database.
type Database struct {
	URL, RedisURL string
	Key           string // API key of the client that owns its rows; "": none yet
	Client        uuid.UUID
	Conn          *pgx.Conn
}

// NewDatabase makes one.
func (l *Lab) NewDatabase(ctx context.Context) (*Database, error) {
	name := "bench_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := l.admin(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	redisURL, err := url.Parse(l.Servers.Redis.URL())
	if err != nil {
		return nil, err
	}
	l.redisDB++
	redisURL.Path = "/" + strconv.Itoa(l.redisDB)
	d := &Database{URL: strings.Replace(l.Servers.Postgres.URL(), "/forgerun?", "/"+name+"?", 1), RedisURL: redisURL.String()}
	if err := repo.Migrate(ctx, d.URL, -1); err != nil {
		return nil, err
	}
	d.Conn, err = pgx.Connect(ctx, d.URL)
	return d, err
}

// Drop removes the database and what its system left in Redis.
func (l *Lab) Drop(ctx context.Context, d *Database) error {
	err := errors.Join(d.Conn.Close(ctx), l.admin(ctx, "DROP DATABASE "+d.Conn.Config().Database+" WITH (FORCE)"))
	client, failure := d.Redis()
	if failure != nil {
		return errors.Join(err, failure)
	}
	return errors.Join(err, client.FlushDB(ctx).Err(), client.Close())
}

// admin runs a statement outside the databases of the experiments.
func (l *Lab) admin(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, l.Servers.Postgres.URL())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

// Redis connects to the Redis database.
func (d *Database) Redis() (*redis.Client, error) { return redisClient(d.RedisURL) }

// Redis connects to the Redis server.
func (l *Lab) Redis() (*redis.Client, error) { return redisClient(l.Servers.Redis.URL()) }

func redisClient(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(o), nil
}

// Number reads one number from the database.
func (d *Database) Number(ctx context.Context, sql string, args ...any) (n float64, err error) {
	err = d.Conn.QueryRow(ctx, "SELECT ("+sql+")::float8", args...).Scan(&n)
	return n, err
}
