package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	want := map[error]job.Code{
		context.DeadlineExceeded: job.CodeDBError,
		context.Canceled:         job.CodeDBError,
		io.EOF:                   job.CodeStorageUnavailable,
		io.ErrUnexpectedEOF:      job.CodeStorageUnavailable,
		net.ErrClosed:            job.CodeStorageUnavailable,
		&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}: job.CodeStorageUnavailable,
		&pgconn.ConnectError{}:   job.CodeStorageUnavailable,
		errors.New("unheard of"): job.CodeDBError,
	}
	for code, states := range map[job.Code][]string{
		job.CodeConflict: {"23505"},                                     // unique violation
		job.CodeInternal: {"23514", "23502", "22021"},                   // check and not null violation, invalid encoding
		job.CodeDBError:  {"57014", "55P03", "40P01", "42P01", "XX000"}, // timeouts, deadlock, no such table, internal error
		job.CodeStorageUnavailable: {
			"25006", "53100", "53300", // read-only, disk full, too many connections
			"57P01", "57P02", "57P03", "08006", // administrator's shutdown, crash, starting up, connection failure
		},
	} {
		for _, state := range states {
			want[pgError(state)] = code
			want[fmt.Errorf("wrapped: %w", pgError(state))] = code
		}
	}
	for cause, code := range want {
		err := translate(cause)
		require.Equal(t, code, job.CodeOf(err), "%v", cause)
		require.ErrorIs(t, err, cause, "the log needs the cause")
		var e *job.Error
		require.ErrorAs(t, err, &e)
		require.NotContains(t, e.Detail, "pg", "a client learns nothing internal")
		if e.Code.Spec().Status == 503 {
			require.Equal(t, retryAfter, e.RetryAfter)
		}
	}
}

func TestTranslateLeavesKnownErrorsAlone(t *testing.T) {
	t.Parallel()
	require.NoError(t, translate(nil))
	for _, err := range []error{job.ErrStale, job.ErrWorkerDead, errKeyReused, fmt.Errorf("wrapped: %w", errNotFound)} {
		require.Same(t, err, translate(err))
	}
}

// Each file in sql/ belongs to the Go file of the same name. Each statement and
// fragment in it begins with its contract, and is used.
func TestStatementsHaveAContractAndAreUsed(t *testing.T) {
	t.Parallel()
	code := goSources()
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`statement\("(\w+)"`).FindAllStringSubmatch(code, -1) {
		used[m[1]] = true
	}
	for _, m := range regexp.MustCompile(`"\{\{(\w+)\}\}"`).FindAllStringSubmatch(code, -1) { // stands for another one
		used[m[1]] = true
	}
	files, err := sqlFiles.ReadDir("sql")
	require.NoError(t, err)
	onDisk, err := filepath.Glob("sql/*")
	require.NoError(t, err)
	require.Len(t, files, len(onDisk), "every file is embedded")
	names := map[string]bool{}
	for _, f := range files {
		require.FileExists(t, strings.TrimSuffix(f.Name(), ".sql")+".go")
		content, err := sqlFiles.ReadFile("sql/" + f.Name())
		require.NoError(t, err)
		parts := regexp.MustCompile(`(?m)^-- (?:name|fragment): `).Split(string(content), -1)
		require.Empty(t, parts[0], "%s begins with a statement", f.Name())
		for _, part := range parts[1:] {
			name, body, _ := strings.Cut(part, "\n")
			require.False(t, names[name], "%s is there twice", name)
			names[name] = true
			require.Regexp(t, `^-- [A-Z][a-z]`, body, "%s: its contract follows its name", name)
			for _, ref := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(body, -1) {
				used[ref[1]] = true
			}
		}
	}
	for name := range names {
		require.True(t, used[name], "%s is not used", name)
	}
	for name := range constants {
		require.True(t, used[name], "%s is not used", name)
	}
}

// A comment has a line for itself: so none is left in what is sent, and nothing of a statement is taken for one.
func TestStatementsAreSentWithoutComments(t *testing.T) {
	t.Parallel()
	require.NotEmpty(t, Statements)
	for name, text := range Statements {
		for _, left := range []string{"--", "/*", "{{", "@"} {
			require.NotContains(t, text, left, "%s", name)
		}
		require.Regexp(t, `^(WITH|SELECT|INSERT|UPDATE|DELETE|LOCK)\s`, text, "%s", name)
	}
	for name, s := range sections {
		require.NotContains(t, s.text, "--", "%s", name)
	}
	s := readSection("-- Locks nothing.\n-- Parameters: @name,\n--   @n\nSELECT '@{{x}}' -- kept\n  -- of a line\nFROM t WHERE a = @n\n")
	require.Equal(t, section{text: "SELECT '@{{x}}' -- kept\nFROM t WHERE a = @n", params: []string{"name", "n"}}, s)
}

func TestParametersAreNumberedAsListed(t *testing.T) {
	t.Parallel()
	for name, s := range sections {
		for i, p := range s.params {
			require.NotContains(t, s.params[:i], p, "%s", name)
			require.Contains(t, expand(s.text, []string{"{{owner}}", "", "{{value}}", "", "{{guard}}", "",
				"{{candidates}}", "", "{{table}}", "jobs", "{{key}}", "job_id", "{{order}}", "", "{{within}}", "{{withinLimit}}",
				"{{range}}", "job_id < @id AND webhook_id < @after AND @at AND @from_id", "{{source}}", "jobs",
				"{{sort}}", "job_id", "{{placed}}", "created_at", "{{scheduleValues}}", "@schedules, @scheduled_times"}), "@"+p, "%s", name)
		}
	}
	require.Equal(t, "SELECT job_id FROM jobs WHERE batch_id = $1 AND finished_at IS NULL\n"+
		"  AND EXISTS (SELECT FROM batches WHERE batch_id = $1 AND client_id = $2)", statement("openJobs"))
	require.Panics(t, func() { statement("nothing") })
	require.Panics(t, func() { statement("listJobs", "{{owner}}", "client_id", "{{value}}", "@other", "{{guard}}", "true") })
	require.Panics(t, func() { statement("listJobs") }, "owner is not known")
}

// closedPool is a pool that leads nowhere.
func closedPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/none")
	require.NoError(t, err)
	pool.Close()
	return pool
}

func pgError(code string) error { return &pgconn.PgError{Code: code} }

func TestBatcherSplitsOutTheBadItems(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"22021", "23514"} {
		t.Run(code, func(t *testing.T) {
			g, b := gated(t)
			bad := []string{"7", "40"}
			var flushes atomic.Int32
			b.flush = func(_ context.Context, _ conn, items []string) ([]answer[string], error) {
				answers, err := g.flush(items)
				flushes.Add(1)
				if slices.Contains(items, bad[0]) || slices.Contains(items, bad[1]) {
					return nil, pgError(code)
				}
				return answers, err
			}
			g.occupy(t.Context(), b)
			calls := map[string]<-chan answer[string]{}
			for i := range 64 {
				calls[strconv.Itoa(i)] = call(t.Context(), b, strconv.Itoa(i))
				b.awaitQueued(t, i+1)
			}
			close(g.open)
			for item, done := range calls {
				a := <-done
				if slices.Contains(bad, item) {
					require.Equal(t, job.CodeInternal, job.CodeOf(a.err), item)
					continue
				}
				require.NoError(t, a.err, item)
				require.Equal(t, item, a.value)
			}
			b.stop()
			require.EqualValues(t, 2+1+2*2*6-2, flushes.Load(), "one path to each bad item, both halves at each step, the first step shared")
		})
	}
}

func TestBatcherFailsTogetherWhenNoItemIsToBlame(t *testing.T) {
	g, b := gated(t)
	b.flush = func(_ context.Context, _ conn, items []string) ([]answer[string], error) {
		_, _ = g.flush(items)
		if len(items) > 1 {
			return nil, pgError("25006")
		}
		return echo(items)
	}
	occupied := g.occupy(t.Context(), b)
	first, second := call(t.Context(), b, "a"), call(t.Context(), b, "b")
	b.awaitQueued(t, 2)
	b.store.pool = closedPool(t)
	close(g.open)
	requireAnswers(t, occupied...)
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf((<-first).err))
	require.Equal(t, job.CodeStorageUnavailable, job.CodeOf((<-second).err))
}

func TestBatcherRepeatsAfterADeadlock(t *testing.T) {
	t.Parallel()
	for _, code := range []string{stateDeadlock, stateSerialization} {
		tries := 0
		b := testBatcher(t, func(items []string) ([]answer[string], error) {
			if tries++; tries < deadlockTries {
				return nil, pgError(code)
			}
			return echo(items)
		})
		v, err := b.do(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, "a", v)

		lost := testBatcher(t, func([]string) ([]answer[string], error) { return nil, pgError(code) })
		_, err = lost.do(t.Context(), "a")
		require.Equal(t, job.CodeDBError, job.CodeOf(err))
	}
}
