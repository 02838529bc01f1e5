package pg

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// setSession sets the limits of every session. The statement timeout is shorter than the caller's timeout (see Bound). The lock timeout is
// even shorter, so that a batch with a locked row can be split in time.
func setSession(c *pgconn.Config, cfg Config) {
	if c.RuntimeParams == nil {
		c.RuntimeParams = map[string]string{}
	}
	c.RuntimeParams["application_name"] = cfg.ApplicationName
	c.RuntimeParams["timezone"] = "UTC"
	settings := map[string]string{
		"statement_timeout":                   Milliseconds(cfg.Timeout),
		"lock_timeout":                        Milliseconds(cfg.Timeout * 2 / 5),
		"idle_in_transaction_session_timeout": Milliseconds(cfg.Timeout * 2),
	}
	// Each session plans a statement only once, and uses this plan for all arguments. Planning a large statement takes as long as running it.
	settings["plan_cache_mode"] = "force_generic_plan"
	// Every statement finds its rows by an index. Without these settings, a plan that was made for a small table could scan the whole table
	// when it has grown. JIT is off, because the statements are too short for it.
	for _, setting := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
		settings[setting] = "off"
	}
	if cfg.OutcomeStream {
		settings["forgerun.outcome_stream"] = "on" // read by the trigger reports_published
	}
	if cfg.Clock != nil {
		SetOnConnect(c, settings, searchOwnFirst)
	} else {
		SetOnConnect(c, settings)
	}
	if c.ConnectTimeout == 0 || c.ConnectTimeout > cfg.Timeout {
		c.ConnectTimeout = cfg.Timeout
	}
}

// assumed has the settings that the statements rely on. A role or a database may have other defaults for other programs.
var assumed = map[string]string{
	"standard_conforming_strings": "on", "transform_null_equals": "off", "array_nulls": "on", "xmloption": "content",
	"datestyle": "ISO, MDY", "intervalstyle": "postgres", "extra_float_digits": "1", "bytea_output": "hex",
	"default_transaction_isolation": "read committed", "default_transaction_deferrable": "off",
	"statement_timeout": "0", "idle_in_transaction_session_timeout": "0", "check_function_bodies": "on",
}

// SetOnConnect makes each new session run a statement with the settings, and then the given statements. The settings are not in the startup
// message, because poolers refuse or lose most of them there.
func SetOnConnect(c *pgconn.Config, settings map[string]string, statements ...string) {
	all := maps.Clone(assumed)
	maps.Copy(all, settings)
	var set strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&set, "SET %s = '%s';", name, all[name])
	}
	set.WriteString(strings.Join(statements, ""))
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		return conn.Exec(ctx, set.String()).Close()
	}
}

// searchOwnFirst puts pg_catalog last in search_path. So statements use the test bed's functions now() and clock_timestamp() instead of the
// functions of Postgres. A statement that needs Postgres' real time calls pg_catalog.now() or pg_catalog.clock_timestamp().
const searchOwnFirst = `SELECT set_config('search_path', concat_ws(', ', CASE WHEN 'pg_catalog' = ANY (current_schemas(false))
  THEN (SELECT string_agg(quote_ident(s), ', ' ORDER BY n) FROM unnest(current_schemas(false)) WITH ORDINALITY AS u(s, n)
    WHERE s <> 'pg_catalog')
  ELSE nullif(current_setting('search_path'), '') END, 'pg_catalog'), false);`

// ScanUTC makes a connection return times in UTC, as package job requires. It also makes the connection return a NULL id as the zero ID.
func ScanUTC(_ context.Context, conn *pgx.Conn) error {
	conn.TypeMap().TryWrapScanPlanFuncs = slices.Insert(conn.TypeMap().TryWrapScanPlanFuncs, 0, planID)
	conn.TypeMap().RegisterType(&pgtype.Type{
		Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC},
	})
	return nil
}

// Milliseconds formats a duration for session settings.
func Milliseconds(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
