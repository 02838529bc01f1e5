package main

import (
	"flag"
	"os"
	"testing"

	"github.com/forgerun/forgerun/internal/testkit"
	chromium "github.com/forgerun/forgerun/internal/testkit/browser"
	"github.com/forgerun/forgerun/repo/repotest"
)

// parallelTests is how many tests run at once unless -parallel says otherwise.
// They mostly wait for leases to run out and servers to come back.
const parallelTests = "10"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		panic(err) // the testing package has no such flag any more
	}
	code := repotest.Main(m)
	chromium.Stop()
	testkit.RemovePrograms()
	os.Exit(code)
}
