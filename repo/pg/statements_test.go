package pg

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestStatements(t *testing.T) { // not parallel, because it registers statements
	statement, variant := Statements(fstest.MapFS{"a.sql": {Data: []byte(`-- name: testRead
-- Locks nothing.
-- Parameters: @name,
--   @n, @nth
SELECT '{{testShared}}'
  -- of a line
FROM t WHERE {{testGuard}} AND name = @name AND nth = @nth

-- fragment: testGuard
-- Guards n.
n = @n

-- name: testBroken
-- Parameters: @a
SELECT @b
`)}}, map[string]string{"testShared": "shared"})
	require.Equal(t, "SELECT 'shared'\nFROM t WHERE n = $2 AND name = $1 AND nth = $3", statement("testRead"))
	require.Equal(t, "SELECT 'shared'\nFROM t WHERE $2 > 0 AND name = $1 AND nth = $3",
		variant("testVariant", "testRead", "{{testGuard}}", "@n > 0"))
	require.Panics(t, func() { statement("testBroken") }, "an unlisted parameter panics")
	require.Panics(t, func() { statement("testMissing") })
	require.Panics(t, func() { variant("testWrong", "testRead", "{{testGuard}}", "{{testMissing}}") })
}
