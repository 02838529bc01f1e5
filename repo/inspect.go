package repo

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// Errors of Inspect. Their texts complete the sentence "Postgres at db:5432 ...".
var (
	ErrBadURL     = errors.New("has an invalid address")
	ErrAway       = errors.New("does not accept connections")
	ErrSilent     = errors.New("does not answer in time")
	ErrClosed     = errors.New("closes connections without a response")
	ErrBusy       = errors.New("accepts no sessions now")
	ErrLogin      = errors.New("refuses the login")
	ErrNoDatabase = errors.New("has no such database")
	ErrTLS        = errors.New("and this program disagree on TLS")
	ErrPooled     = errors.New("is a pooler in transaction mode")
	ErrUnread     = errors.New("refuses to be inspected")
)

// Inspection is the result of Inspect: facts, without a judgement.
type Inspection struct {
	Place       string // host:port/database
	User        string
	Version     int               // server_version_num, such as 150004
	VersionName string            // server_version
	Settings    map[string]string // values of inspectedSettings in a session of this user
	IsStandby   bool
	Encoding    string

	PoolSize    int // pool size of a process with this URL
	Connections int // current connections of the server
	Usable      int // maximum number of connections for this user

	ClockOffset time.Duration // how far Postgres' clock is ahead of this machine's
	RoundTrip   time.Duration // ClockOffset may be wrong by half of RoundTrip

	SchemaVersion, NeededVersion int64    // SchemaVersion is 0 without ForgeRun's tables
	FormerSchema                 bool     // schema of a version before 0.1.0, which cannot be migrated
	Schema                       string   // quoted name of the schema with the tables, "" if none
	MissingPrivileges            []string // such as "INSERT on jobs"
	MigratorLacks                string   // missing privilege for migrations, such as "CREATE on schema public"

	Writing *Transaction // oldest writing transaction, if it is older than a second

	State *State // nil if it cannot be read from this schema
}

// Transaction is an open transaction on the server.
type Transaction struct {
	PID                   int // 0 for a prepared transaction, which has no session
	User, Database, Named string
	Age                   time.Duration
}

// State is the state of the processes that share the database.
type State struct {
	Workers, Slots, Held int           // live workers, the jobs that they can hold, and the jobs that they hold
	OldestDue            time.Duration // how long the oldest due job has waited; 0 if none waits
	Moving               bool          // a job was started or ended within the last minute
	HasLeader            bool
	LeaderBlocked        bool             // the leader cannot do all of its work, and no other process can take over
	HasWebhooks          bool             // whether there are webhooks that are not deleted
	Ahead                bool             // workers or waiting jobs have times in the future, because Postgres' clock was ahead
	SigningKeys          []job.SigningKey // published keys with id, public part and encrypted private part
}

// NewestSchema returns the newest schema version that this program knows.
func NewestSchema() int64 { return schemaVersion() }

// inspectedSettings lists the server parameters that "forgerun doctor" judges.
var inspectedSettings = []string{
	"fsync", "full_page_writes", "synchronous_commit", "default_transaction_read_only", "max_connections",
}

// inspectTimeout limits the connection attempt, and each statement.
const inspectTimeout = 3 * time.Second

// Inspect reads the database over its own connection, in read-only transactions. The returned error wraps one of the errors above. It
// contains the server's message, but never the password. Inspection.Place is set unless the URL is invalid (ErrBadURL).
func Inspect(ctx context.Context, url string) (Inspection, error) {
	i := Inspection{NeededVersion: schemaVersion(), Settings: map[string]string{}}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return i, ErrBadURL // not the driver's error, which quotes the address
	}
	i.PoolSize, i.User = int(max(cfg.MaxConns, pg.MinConns)), cfg.ConnConfig.User
	i.Place = net.JoinHostPort(cfg.ConnConfig.Host, strconv.Itoa(int(cfg.ConnConfig.Port))) + "/" + cfg.ConnConfig.Database
	cfg.ConnConfig.ConnectTimeout = inspectTimeout
	cfg.ConnConfig.RuntimeParams["application_name"] = "forgerun doctor"
	pg.SetOnConnect(&cfg.ConnConfig.Config, map[string]string{
		"statement_timeout": pg.Milliseconds(inspectTimeout), "lock_timeout": pg.Milliseconds(inspectTimeout / 2),
	})
	conn, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return i, obstacle(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if err := refusePooler(ctx, &cfg.ConnConfig.Config); err != nil {
		return i, err
	}
	for _, look := range []func(context.Context, pgx.Tx) error{i.readServer, i.readClock, i.readTransactions, i.readSchema, i.readState} {
		err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error { return look(ctx, tx) })
		if err != nil {
			return i, obstacle(err)
		}
	}
	return i, nil
}

func (i *Inspection) readServer(ctx context.Context, tx pgx.Tx) error {
	err := tx.QueryRow(ctx, statement("inspectServer")).Scan(&i.Version, &i.VersionName, &i.IsStandby, &i.Encoding, &i.Connections, &i.Usable)
	if err != nil {
		return err
	}
	return tx.QueryRow(ctx, `SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name = ANY($1)`, inspectedSettings).
		Scan(&i.Settings)
}

// clockTries is the number of times that Inspect reads the clock. Inspect uses the fastest reading, because it is the most accurate.
const clockTries = 3

func (i *Inspection) readClock(ctx context.Context, tx pgx.Tx) error {
	for range clockTries {
		var theirs time.Time
		asked := time.Now()
		if err := tx.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs); err != nil {
			return err
		}
		took := time.Since(asked)
		if i.RoundTrip == 0 || took < i.RoundTrip {
			i.RoundTrip, i.ClockOffset = took, theirs.Sub(asked.Add(took/2))
		}
	}
	return nil
}

// readTransactions finds the transaction that holds back the streams of events.
func (i *Inspection) readTransactions(ctx context.Context, tx pgx.Tx) error {
	found, ok, err := pg.First(pg.RowsIn(ctx, tx, pgx.RowToStructByPos[Transaction], statement("inspectTransactions")))
	if ok {
		i.Writing = &found
	}
	return err
}

func (i *Inspection) readSchema(ctx context.Context, tx pgx.Tx) error {
	var err error
	if i.MissingPrivileges, err = pg.RowsIn(ctx, tx, pgx.RowTo[string], statement("inspectPrivileges")); err != nil {
		return err
	}
	if err = tx.QueryRow(ctx, statement("migratorLacks")).Scan(&i.MigratorLacks); err != nil {
		return err
	}
	var canRead bool
	err = tx.QueryRow(ctx, `SELECT coalesce(has_table_privilege(to_regclass('goose_db_version'), 'SELECT'), false),
		coalesce((SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = to_regclass('jobs')), '')`).Scan(&canRead, &i.Schema)
	if err != nil || !canRead {
		return err
	}
	return tx.QueryRow(ctx, statement("schemaVersion")).Scan(&i.SchemaVersion, &i.FormerSchema)
}

func (i *Inspection) readState(ctx context.Context, tx pgx.Tx) error {
	if i.SchemaVersion != i.NeededVersion || i.FormerSchema || len(i.MissingPrivileges) > 0 {
		return nil
	}
	var s State
	err := tx.QueryRow(ctx, statement("inspectState")).Scan(&s.Workers, &s.Slots, &s.Held, &s.OldestDue, &s.Moving,
		&s.HasLeader, &s.LeaderBlocked, &s.HasWebhooks, &s.Ahead)
	if err != nil {
		return err
	}
	s.SigningKeys, err = pg.RowsIn(ctx, tx, pgx.RowToStructByNameLax[job.SigningKey], statement("inspectSigningKeys"))
	i.State = &s
	return err
}

// The driver asks for TLS first. If the server then sends nothing or closes the connection, the driver reports a TLS error. So these two
// cases are checked before ErrTLS.
func obstacle(err error) error {
	var server *pgconn.PgError
	var network net.Error
	var lookup *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &server):
		return fmt.Errorf("%w: %s", obstacleOfState(server.Code, server.Message), server.Message)
	case errors.As(err, &certificate):
		return ErrTLS
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return ErrSilent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ErrClosed
	case strings.Contains(err.Error(), "tls error"), strings.Contains(err.Error(), "tls:"):
		return ErrTLS
	case errors.As(err, &lookup):
		return fmt.Errorf("%w: the name %s is unknown", ErrAway, lookup.Name)
	}
	return ErrAway
}

func obstacleOfState(code, message string) error {
	switch {
	case strings.Contains(message, "pg_hba.conf") && strings.Contains(message, "no encryption"):
		return ErrTLS
	case pg.InClass(code, "28"): // invalid authorization
		return ErrLogin
	case code == "3D000":
		return ErrNoDatabase
	case pg.InClass(code, pg.ClassResources, "57P"): // full, starting or stopping
		return ErrBusy
	case code == pg.StateQueryCanceled, code == pg.StateLockTimeout:
		return ErrSilent
	}
	return ErrUnread
}

// CheckURL returns an error unless the address is a postgres:// URL or consists of keywords and values. The driver alone is not enough: it
// would parse a URL of another scheme as keywords and values if the URL contains "=".
func CheckURL(address string) error {
	scheme, _, isURL := strings.Cut(address, "://")
	if isURL && !strings.Contains(scheme, "=") && scheme != "postgres" && scheme != "postgresql" {
		return ErrBadURL
	}
	if _, err := pgxpool.ParseConfig(address); err != nil {
		return ErrBadURL // not the driver's error, which quotes the address
	}
	return nil
}
