package main

import (
	"flag"
	"os"
	"testing"

	"github.com/forgerun/forgerun/internal/testkit"
	chromium "github.com/forgerun/forgerun/internal/testkit/browser"
	"github.com/forgerun/forgerun/repo/repotest"
)

// parallelTests is the default of -parallel. Tests mostly wait, so more may run at once than there are processors.
const parallelTests = "16"

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", parallelTests); err != nil {
		panic(err) // the flag has been renamed or removed
	}
	code := repotest.Main(m)
	chromium.Stop()
	testkit.RemovePrograms()
	os.Exit(code)
}
