// Package testkit is shared by the tests of several packages. It builds programs once per test binary and defines how long a test
// waits.
package testkit

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Patience is how long a test waits for an event that must happen: FORGERUN_TEST_PATIENCE, or 60 s by default.
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

// Eventually polls until a condition is true. Use it only if there is no signal to wait for. The interval grows from 5 ms to 100 ms,
// because many polling tests would keep a database busy.
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
