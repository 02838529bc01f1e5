// Command pages writes the parts of docs that are made from code: the tests of each row of docs/explanation/conformance.md
// and the members of docs/reference/scenarios.md. It is run by "go generate".
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

//go:generate go run . ../..

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: pages ROOT")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func write(root string) error {
	tests, err := promises(root)
	if err != nil {
		return err
	}
	err = rewrite(filepath.Join(root, "docs/explanation/conformance.md"), func(page string) (string, error) {
		return nameTests(page, tests)
	})
	if err != nil {
		return err
	}
	schema, err := os.ReadFile(filepath.Join(root, "internal/simulator/scenario/schema.json"))
	if err != nil {
		return err
	}
	return rewrite(filepath.Join(root, "docs/reference/scenarios.md"), func(page string) (string, error) {
		return listMembers(page, schema)
	})
}

func rewrite(file string, change func(page string) (string, error)) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	changed, err := change(string(page))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(changed), 0o600) //nolint:gosec // the file is there: its mode stays
}
