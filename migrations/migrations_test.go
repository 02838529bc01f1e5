package migrations_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/migrations"
)

// Migrations are numbered from 1 without gaps, and each goes up and down.
func TestMigrationsAreNumbered(t *testing.T) {
	t.Parallel()
	for i, name := range names(t) {
		require.True(t, strings.HasPrefix(name, fmt.Sprintf("%05d_", i+1)), "%s is not number %d", name, i+1)
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		require.Contains(t, string(text), "-- +goose Up", name)
		require.Contains(t, string(text), "-- +goose Down", name)
	}
}

// A migration that may have run somewhere is never edited: checksums.txt, in the
// format of sha256sum, has a line for each, written when it was added.
func TestMigrationsAreNeverEdited(t *testing.T) {
	t.Parallel()
	recorded, err := os.ReadFile("checksums.txt")
	require.NoError(t, err)
	var actual strings.Builder
	for _, name := range names(t) {
		text, err := fs.ReadFile(migrations.FS, name)
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		fmt.Fprintf(&actual, "%s  %s\n", hex.EncodeToString(sum[:]), name)
	}
	require.Equal(t, string(recorded), actual.String(), "a new migration gets a line (sha256sum); an old one stays as it is")
}

// names returns the files in the order in which they run.
func names(t *testing.T) []string {
	t.Helper()
	found, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}
