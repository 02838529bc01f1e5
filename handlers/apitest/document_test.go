package apitest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBooleanSchemasAreRefused(t *testing.T) {
	t.Parallel()
	_, err := build([]byte("components: { schemas: { A: { properties: { b: false }, additionalProperties: false } } }"))
	require.ErrorContains(t, err, "/components/schemas/A/properties/b: write {}")
}
