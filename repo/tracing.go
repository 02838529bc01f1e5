package repo

import (
	"regexp"
	"strings"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/trace"
)

// newQueryTracer makes spans of statements below the span of their caller, and
// none without one. They have the text of the statement and no parameters: those
// are the clients' data.
func newQueryTracer(p trace.TracerProvider) pgx.QueryTracer {
	return otelpgx.NewTracer(otelpgx.WithTracerProvider(p), otelpgx.WithSpanNameFunc(verb),
		otelpgx.WithQuerySpanNamePrefix(), otelpgx.WithDisableAcquireTracer())
}

// change is the first change that a statement makes. The names of tables have
// small letters, what may follow UPDATE elsewhere has not.
var change = regexp.MustCompile(`\b(INSERT|UPDATE|DELETE)(?: INTO| FROM)? [a-z]`)

// verb names a statement by what it does: most begin with WITH, whatever they do.
func verb(statement string) string {
	if strings.HasPrefix(statement, "--") {
		return "PING" // the driver's way to ask whether a connection is alive
	}
	if found := change.FindStringSubmatch(statement); found != nil {
		return found[1]
	}
	first, _, _ := strings.Cut(strings.TrimSpace(statement), " ")
	if first == "WITH" {
		return "SELECT"
	}
	return strings.ToUpper(first)
}
