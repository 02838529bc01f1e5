package redisconn

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestWaitFor(t *testing.T) {
	t.Parallel()
	var group sync.WaitGroup
	require.NoError(t, WaitFor(t.Context(), group.Wait))
	group.Add(1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.ErrorIs(t, WaitFor(ctx, group.Wait), context.DeadlineExceeded)
	group.Done()
}
