// Package invariants finds rows of the service that contradict each other. The service's tests and the simulator's judge run the
// same queries, invariants.sql.
package invariants

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

//go:embed invariants.sql
var file string

// Rule is a query of invariants.sql that returns violations.
type Rule struct{ Invariant, Name, query string }

var rule = regexp.MustCompile(`(?m)^-- ([a-z]+): (.+)\n((?s).+?);$`)

// Rules are all rules, in the order of the file.
var Rules = func() (all []Rule) {
	for _, m := range rule.FindAllStringSubmatch(file, -1) {
		all = append(all, Rule{m[1], m[2], m[3]})
	}
	return all
}()

// Finding is a row that breaks a rule.
type Finding struct {
	Rule
	Job    string // "" for a rule that is not about jobs
	Detail string
}

// String returns the finding as one sentence.
func (f Finding) String() string { return f.Name + ": " + f.Detail }

// Find runs all rules. It calls the function `found` for each row that breaks a rule. The head of invariants.sql describes the query
// parameters.
func Find(ctx context.Context, tx pgx.Tx, parameters pgx.NamedArgs, found func(Finding)) error {
	for _, r := range Rules {
		if err := r.Find(ctx, tx, parameters, found); err != nil {
			return err
		}
	}
	return nil
}

// Find calls the function `found` for each row that breaks the rule.
func (r Rule) Find(ctx context.Context, tx pgx.Tx, parameters pgx.NamedArgs, found func(Finding)) error {
	rows, _ := tx.Query(ctx, r.query, parameters) // ForEachRow returns the error of Query
	var job, detail *string
	_, err := pgx.ForEachRow(rows, []any{&job, &detail}, func() error {
		f := Finding{Rule: r}
		if job != nil {
			f.Job = *job
		}
		if detail != nil {
			f.Detail = *detail
		}
		found(f)
		return nil
	})
	if err != nil {
		return fmt.Errorf("rule %q: %w", r.Name, err)
	}
	return nil
}
