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

// checksums.txt has a line for each migration, in the format of sha256sum.
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

func names(t *testing.T) []string {
	t.Helper()
	found, err := fs.Glob(migrations.FS, "*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}
