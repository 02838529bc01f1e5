package repotest_test

import (
	"os"
	"testing"
	"time"

	"github.com/forgerun/forgerun/repo/repotest"
)

func TestMain(m *testing.M) { os.Exit(repotest.Main(m)) }

func TestSpeed(t *testing.T) {
	for i := 0; i < 20; i++ {
		t.Run("x", func(t *testing.T) {
			b := time.Now()
			repotest.URL(t)
			t.Log(time.Since(b))
			b = time.Now()
			t.Cleanup(func() { t.Log("cleanup") })
		})
	}
}
