package repo

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever this machine's clock shows, the time is Postgres'.
func TestNowIsPostgresTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &Store{order: testOrder()}
		require.True(t, s.Now().Equal(time.Now()), "nothing is known yet")
		s.order.clock.observe(time.Now().Add(-time.Hour), time.Now(), false)
		time.Sleep(10 * time.Minute) // without an answer
		require.True(t, s.Now().Equal(time.Now().Add(-time.Hour)))
	})
}
