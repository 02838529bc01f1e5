package pg

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestStatements(t *testing.T) { // not parallel, because it registers statements
	statement := Statements(fstest.MapFS{"a.sql": {Data: []byte(`-- name: testRead
-- Locks nothing.
-- Parameters: @name,
--   @n, @nth
SELECT '{{testShared}}'
  -- of a line
FROM t WHERE {{testGuard}} AND name = @name AND nth = @nth

-- fragment: testGuard
-- Guards n.
n = @n

-- name: testVariant of testRead, testWrong of testBroken
-- Needs no contract of its own.
-- {{testGuard}} => @n > 0
-- @b => {{testMissing}}

-- name: testBroken
-- Parameters: @a
SELECT @b
`)}}, map[string]string{"testShared": "shared"})
	require.Equal(t, "SELECT 'shared'\nFROM t WHERE n = $2 AND name = $1 AND nth = $3", statement("testRead"))
	require.Equal(t, "SELECT 'shared'\nFROM t WHERE $2 > 0 AND name = $1 AND nth = $3", statement("testVariant"))
	for why, name := range map[string]string{"an unlisted parameter": "testBroken", "no section": "testMissing", "no fragment": "testWrong"} {
		require.Panics(t, func() { statement(name) }, why)
	}
}
