package stream

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

// However many streams a few clients open, one that has none gets one.
func TestTheLastStreamsAreForClientsWithoutAny(t *testing.T) {
	t.Parallel()
	l := NewLimiter(100, 60)
	greedy := func(client byte) (held int) {
		for {
			if _, err := l.Acquire(job.ID{client}); err != nil {
				return held
			}
			held++
		}
	}
	require.Equal(t, 60, greedy(1))
	require.Equal(t, 30, greedy(2), "the last tenth is not for who has some")
	_, err := l.Acquire(job.ID{1})
	require.Equal(t, job.CodeRateLimited, job.CodeOf(err))
	_, err = l.Acquire(job.ID{2})
	require.Equal(t, job.CodeQueueFull, job.CodeOf(err))
	var first func()
	for client := range byte(10) {
		release, err := l.Acquire(job.ID{100 + client})
		require.NoError(t, err)
		if first == nil {
			first = release
		}
	}
	_, err = l.Acquire(job.ID{200})
	require.Equal(t, job.CodeQueueFull, job.CodeOf(err), "all are held")
	first()
	_, err = l.Acquire(job.ID{200})
	require.NoError(t, err)
}
