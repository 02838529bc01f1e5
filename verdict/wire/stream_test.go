package wire_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/verdict/wire"
)

// Clients take an empty id as a reset, and ignore an id with NUL.
func TestIDsOfStreams(t *testing.T) {
	t.Parallel()
	for _, e := range []*fault.Effect{nil, {CutAfter: new(9)}} {
		s := &wire.Stream{To: io.Discard, Effect: e}
		_, err := io.WriteString(s, "id: 1\ndata: a\n\nid:\ndata: b\n\nid: 2\x00\ndata: c\n\nid\n\nid: 3\n\ndata: d\n\nid: 4\nid: 5\ndata: e\n\n")
		require.NoError(t, err)
		require.Equal(t, []string{"1", "", "", "3", "5"}, s.Part().IDs)
		require.Zero(t, s.Part().Late)
	}
}

func TestIDsAtTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &wire.Stream{To: io.Discard, Effect: &fault.Effect{CutAfter: new(3)}}
		write := func(events string) error {
			_, err := io.WriteString(s, events)
			return err
		}
		require.NoError(t, write("id: 1\ndata: a\n\n"))
		time.Sleep(time.Second)
		require.ErrorIs(t, write("id: 2\ndata: b\n\nid: 3\ndata: c\n\nid: 4\ndata: d\n\n"), wire.ErrEnded)
		require.Equal(t, []string{"1", "2", "3"}, s.Part().IDs)
		require.Equal(t, 2, s.Part().Late)

		closed := make(chan struct{})
		close(closed)
		s = &wire.Stream{To: io.Discard, Effect: &fault.Effect{StallAfter: new(1)}, Closed: closed}
		require.ErrorIs(t, write("id: 1\ndata: a\n\nid: 2\ndata: b\n\n"), wire.ErrEnded)
		require.Equal(t, []string{"1"}, s.Part().IDs)
		require.Zero(t, s.Part().Late)
	})
}
