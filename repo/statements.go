package repo

import (
	"context"
	"embed"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	guid "github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/forgerun/forgerun/job"
)

// The statements stand in sql/, in a file named like the Go file that sends
// them. Each begins with a comment: its name, its contract (what it locks and in
// which order, the indexes that it uses, what no row means, the triggers that
// follow) and its parameters in the order of their values. {{x}} stands for the
// fragment or the constant x.
//
//go:embed sql/*.sql
var sqlFiles embed.FS

// section is a statement or a fragment, without comments.
type section struct {
	text   string
	params []string
}

var sections = readSections()

// constants are what the statements share with Go code.
var constants = map[string]string{
	"batchColumns": batchColumns, "bulkColumns": bulkColumns, "faultColumns": faultColumns, "sessionColumns": sessionColumns,
	"scheduleColumns": scheduleColumns, "jumped": "NULL::timestamptz", "scheduleMembers": "", "scheduleValues": "",
	"bulkItemColumns": bulkItemColumns, "bulkJobColumns": bulkJobColumns,
	"claimedColumns":  strings.ReplaceAll(deliveryColumns, "deliveries.", "e."),
	"deliveryColumns": deliveryColumns, "erasureColumns": erasureColumns,
	"eventColumns": eventColumns, "heldColumns": heldColumns, "jobColumns": jobColumns, "listColumns": listColumns,
	"pauseColumns":    pauseColumns,
	"scenarioColumns": scenarioColumns, "steppedColumns": steppedColumns, "taskColumns": taskColumns, "webhookColumns": webhookColumns,
	"batchBytes": strconv.Itoa(batchBytes), "maxClaimBytes": strconv.Itoa(maxClaimBytes),
	"throttledUntil": "timestamptz '" + job.ThrottledUntil.Format(time.DateTime+"-07") + "'",
	"pausedUntil":    "timestamptz '" + job.PausedUntil.Format(time.DateTime+"-07") + "'",
	"moment":         "clock_timestamp()",
	"maxCounted":     strconv.Itoa(maxCounted), "maxLooked": strconv.Itoa(maxLooked), "maxPickupBytes": strconv.Itoa(maxPickupBytes),
}

// parameter is how a statement's parameter is written.
var parameter = regexp.MustCompile(`@(\w+)`)

// statement gives the statement of that name as it is sent: parameters are
// numbered, and comments are gone. with are pairs of references, such as
// {{owner}}, and what they stand for in this statement.
//
// All are made when the program starts: regular expressions would be most of
// that start.
func statement(name string, with ...string) string {
	text := expand("{{"+name+"}}", with)
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "@")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		p, after := word(rest)
		switch i := slices.Index(sections[name].params, p); {
		case p == "": // an operator
			out.WriteByte('@')
		case i < 0:
			panic("repo: statement " + name + " has no parameter " + p)
		default:
			out.WriteString("$" + strconv.Itoa(i+1))
		}
		text = after
	}
}

// word cuts off the letters, digits and underscores with which a text begins.
func word(text string) (word, rest string) {
	end := 0
	for end < len(text) && (text[end] == '_' || text[end] >= '0' && text[end] <= '9' || text[end]|0x20 >= 'a' && text[end]|0x20 <= 'z') {
		end++
	}
	return text[:end], text[end:]
}

func expand(text string, with []string) string {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{{")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		name, after, _ := strings.Cut(rest, "}}")
		out.WriteString(meaning(name, with))
		text = after
	}
}

// meaning is what a reference to the name stands for.
func meaning(name string, with []string) string {
	for i := 0; i < len(with); i += 2 {
		if with[i] == "{{"+name+"}}" {
			return expand(with[i+1], with)
		}
	}
	if value, ok := constants[name]; ok {
		return value
	}
	s, ok := sections[name]
	if !ok {
		panic("repo: nothing is called " + name)
	}
	return expand(s.text, with)
}

// readSections parses the files. A comment has its line for itself.
func readSections() map[string]section {
	files, err := sqlFiles.ReadDir("sql")
	if err != nil {
		panic(err) // cannot happen: the folder is embedded
	}
	all := map[string]section{}
	for _, f := range files {
		content, err := sqlFiles.ReadFile("sql/" + f.Name())
		if err != nil {
			panic(err)
		}
		// The heads of statements, and of fragments, which only stand within statements.
		for text := range strings.SplitSeq(strings.ReplaceAll("\n"+string(content), "\n-- fragment: ", "\n-- name: "), "\n-- name: ") {
			name, body, _ := strings.Cut(text, "\n")
			all[name] = readSection(body)
		}
	}
	delete(all, "") // what is before a file's first head
	return all
}

func readSection(body string) section {
	var s section
	var lines []string
	listed := false // the parameters have begun
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			lines = append(lines, line)
			continue
		}
		if listed = listed || strings.HasPrefix(line, "-- Parameters: "); listed {
			for _, p := range parameter.FindAllStringSubmatch(line, -1) {
				s.params = append(s.params, p[1])
			}
		}
	}
	s.text = strings.TrimSpace(strings.Join(lines, ""))
	return s
}

// queryRows runs a statement and collects its rows with scan.
func queryRows[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	return queryRowsAs(ctx, s, "read", scan, sql, args...)
}

// queryRowsAs is queryRows for an operation whose errors are counted on their own.
func queryRowsAs[T any](ctx context.Context, s *Store, operation string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var all []T
	err := s.on(ctx, operation, sql, func(ctx context.Context, db conn) (err error) {
		rows, _ := db.Query(ctx, sql, args...) // CollectRows returns its error
		all, err = pgx.CollectRows(rows, scan)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// on has a statement sent to the pool or to the transaction of Once; or, if it writes in the name of an API key, to a transaction
// of its own that requires the key.
func (s *Store) on(ctx context.Context, operation, sql string, send func(context.Context, conn) error) error {
	if job.KeyOf(ctx) != "" && onceTx(ctx) == nil && writes(sql) {
		return s.inTx(ctx, operation, func(ctx context.Context, tx pgx.Tx) error { return send(ctx, tx) })
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	if err := send(ctx, s.db(ctx)); err != nil {
		return s.failed(operation, err)
	}
	return nil
}

// writes reports whether a statement may write.
func writes(sql string) bool {
	return strings.Contains(sql, "INSERT INTO ") || strings.Contains(sql, "UPDATE ") || strings.Contains(sql, "DELETE FROM ")
}

// queryFirst gives the first row of a statement; found is false if it has none.
func queryFirst[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) (first T, found bool, err error) {
	rows, err := queryRows(ctx, s, scan, sql, args...)
	if err != nil || len(rows) == 0 {
		return first, false, err
	}
	return rows[0], true, nil
}

// collectByID collects rows that begin with an id. columns gives what the
// others are scanned into.
func collectByID[T any](rows pgx.Rows, err error, columns func(*T) []any) (map[job.ID]T, error) {
	if err != nil {
		return nil, err
	}
	var id job.ID
	var value T
	found := map[job.ID]T{}
	_, err = pgx.ForEachRow(rows, append([]any{scanID(&id)}, columns(&value)...), func() error {
		found[id] = value
		value = *new(T)
		return nil
	})
	return found, err
}

// queryByID runs a statement and collects its rows as collectByID does.
func queryByID[T any](ctx context.Context, s *Store, columns func(*T) []any, sql string, args ...any) (map[job.ID]T, error) {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	rows, err := s.db(ctx).Query(ctx, sql, args...)
	found, err := collectByID(rows, err, columns)
	if err != nil {
		return nil, s.failed("read", err)
	}
	return found, nil
}

// change runs a statement and gives the number of rows that it changed.
func (s *Store) change(ctx context.Context, operation, sql string, args ...any) (int, error) {
	var n int64
	err := s.on(ctx, operation, sql, func(ctx context.Context, db conn) error {
		tag, err := db.Exec(ctx, sql, args...)
		n = tag.RowsAffected()
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}

// inTx runs a function in a transaction: that of Once, or one of its own, which requires the API key of the context.
func (s *Store) inTx(ctx context.Context, operation string, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	var err error
	if tx := onceTx(ctx); tx != nil {
		err = do(ctx, tx)
	} else {
		err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			if err := do(ctx, tx); err != nil {
				return err
			}
			return requireKeyIn(ctx, tx)
		})
	}
	if err != nil {
		return s.failed(operation, err)
	}
	return nil
}

// exec runs a statement without an answer.
func (s *Store) exec(ctx context.Context, operation, sql string, args ...any) error {
	_, err := s.change(ctx, operation, sql, args...)
	return err
}

// uuid passes an ID to Postgres; the zero ID is NULL.
func uuid(id job.ID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: !id.IsZero()} }

// idScanner reads a uuid column into an ID; NULL is the zero ID.
type idScanner job.ID

func (s *idScanner) ScanUUID(v pgtype.UUID) error {
	*s = idScanner(v.Bytes)
	return nil
}

func scanID(id *job.ID) *idScanner { return (*idScanner)(id) }

// rowToID reads a row that is an id.
func rowToID(row pgx.CollectableRow) (id job.ID, err error) { return id, row.Scan(scanID(&id)) }

// eventIDs makes the ids of that many events. Postgres could do it too, for
// several times the cost.
func eventIDs(n int) []pgtype.UUID {
	ids := make([]pgtype.UUID, n)
	for i := range ids {
		ids[i] = pgtype.UUID{Bytes: guid.Must(guid.NewV7()), Valid: true}
	}
	return ids
}

// column turns one member of each item into an array argument for unnest.
func column[T, V any](items []T, value func(T) V) []V {
	values := make([]V, len(items))
	for i, item := range items {
		values[i] = value(item)
	}
	return values
}

// jsonColumn is column for jsonb: it encodes one member of each item, or passes NULL if an item has none.
func jsonColumn[T, V any](items []T, value func(T) (v V, ok bool)) ([][]byte, error) {
	encoded := make([][]byte, len(items))
	for i, item := range items {
		v, ok := value(item)
		if !ok {
			continue
		}
		var err error
		if encoded[i], err = json.Marshal(v); err != nil {
			return nil, err
		}
	}
	return encoded, nil
}

// nullable is NULL for the zero value.
func nullable[V comparable](v V) *V {
	if v == *new(V) {
		return nil
	}
	return &v
}

// deref gives the zero value for NULL.
func deref[V any](p *V) V {
	if p == nil {
		return *new(V)
	}
	return *p
}
