package main

import (
	"flag"
	"os"
	"testing"

	"github.com/forgerun/forgerun/repo/repotest"
)

// asProgram makes the test binary be the program: so the processes of the
// end-to-end tests have the race detector whenever the tests have it.
const asProgram = "TEST_BINARY_IS_FORGERUN"

// parallelTests is how many tests run at once unless -parallel says otherwise.
// They mostly wait for leases to run out and servers to come back.
const parallelTests = "10"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		panic(err) // the testing package has no such flag any more
	}
	os.Exit(repotest.Main(m))
}
