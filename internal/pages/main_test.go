package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "## The contract\n\n- 5a: One (1: 2) (TestOld)\n- 5b: Two (not tested)\n"

func TestNameTests(t *testing.T) {
	t.Parallel()
	named, err := nameTests(page, map[string][]string{"contract 5a": {"TestTwo", "TestOne", "TestTwo"}})
	require.NoError(t, err)
	require.Contains(t, named, "- 5a: One (1: 2) (TestOne, TestTwo)\n- 5b: Two (not tested)\n")

	_, err = nameTests(page, map[string][]string{"contract 5c": {"TestOne"}})
	require.ErrorContains(t, err, `[TestOne]: no row is "contract 5c"`)
	_, err = nameTests(page+"- 5b: Three (not tested)\n", nil)
	require.ErrorContains(t, err, "an unused id")
	_, err = nameTests(page+"- 5c: Three\n", nil)
	require.ErrorContains(t, err, "must be like")
}
