// Command pages writes the names of the tests into docs/explanation/conformance.md. "go generate" runs it.
package main

import (
	"fmt"
	"os"
)

//go:generate go run .

const root = "../.."

func main() {
	if err := write(); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func write() error {
	tests, err := promises()
	if err != nil {
		return err
	}
	return rewrite(root+"/docs/explanation/conformance.md", func(page string) (string, error) {
		return nameTests(page, tests)
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
	return os.WriteFile(file, []byte(changed), 0o600)
}
