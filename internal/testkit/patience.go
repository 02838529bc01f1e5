// Package testkit is what the tests of several packages share: the programs, built once for a test binary, and the patience
// with which a test waits for what must happen.
package testkit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience bounds each wait of a test for something that must happen: FORGERUN_TEST_PATIENCE, 60 s without it. It says when
// to give up and nothing about how long something may take.
var Patience = patience()

func patience() time.Duration {
	const variable = "FORGERUN_TEST_PATIENCE"
	text, ok := os.LookupEnv(variable)
	if !ok {
		return time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		panic(fmt.Sprintf("%s=%q is no positive duration such as 90s", variable, text))
	}
	return d
}

// Eventually polls for a condition that announces itself by no event: every 5 ms at first, and every 100 ms in the end, since
// many tests that wait for a database would keep it busy.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 5 * time.Millisecond; !condition(); pause = min(pause*5/4, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			require.FailNow(t, "did not happen within "+Patience.String()+": "+what)
		}
		time.Sleep(pause)
	}
}
