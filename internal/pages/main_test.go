package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const page = "## The contract\n\n| section | decided | tests |\n|---|---|---|\n| 5a | one | TestOld |\n| 5b | two | |\n"

func TestNameTests(t *testing.T) {
	t.Parallel()
	named, err := nameTests(page, map[string][]string{"contract 5a": {"TestTwo", "TestOne", "TestTwo"}})
	require.NoError(t, err)
	require.Contains(t, named, "| 5a | one | TestOne, TestTwo |\n| 5b | two | not tested |\n")

	_, err = nameTests(page, map[string][]string{"contract 5c": {"TestOne"}})
	require.ErrorContains(t, err, `[TestOne]: no row is "contract 5c"`)
	_, err = nameTests(page+"| 5b | three | |\n", nil)
	require.ErrorContains(t, err, "an unused id")
}
