package stream

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

type source struct {
	read atomic.Int64 // number of events read so far
	asks atomic.Int64
	err  error
}

func (s *source) Read(context.Context, int) (Page, error) {
	s.asks.Add(1)
	if s.err != nil {
		return Page{}, s.err
	}
	o := job.Occurrence{Event: job.Event{JobID: clientB, Seq: int(s.read.Add(1)), Name: job.EventEmitted}}
	return Page{Events: []job.Occurrence{o}, More: true}, nil
}

func (s *source) EventID(_ context.Context, o *job.Occurrence) (string, error) {
	return strconv.Itoa(o.Seq), nil
}

func run(t *testing.T, s Source, refused func() error) (e *Engine, in *bufio.Reader) {
	t.Helper()
	e = &Engine{
		Heartbeat: 15 * time.Second, StallTimeout: 10 * time.Second, RequestTimeout: time.Second,
		Watch:    func(job.ID, job.ID) (<-chan job.Notification, func()) { return nil, func() {} },
		WatchKey: func(string, func()) func() { return func() {} },
		Recheck:  func(context.Context, [][]byte, job.ID) error { return refused() },
		Render:   func(*job.Occurrence) any { return strings.Repeat("x", 8<<10) },
		Limiter:  NewLimiter(10, 10), Metrics: NewMetrics(telemetry.In(nil)), Unauthorized: func(job.Code) {},
		Logger: slog.New(slog.DiscardHandler),
	}
	near, far := net.Pipe() // unbuffered: a write waits for a read
	release, err := e.Limiter.Acquire(clientA)
	require.NoError(t, err)
	go e.Run(&Stream{Source: s, Client: clientA, Conn: near, Head: Start("")[:0], Release: release})
	return e, bufio.NewReader(far)
}

func ended(t *testing.T, e *Engine, reason Ending) {
	t.Helper()
	require.NoError(t, e.Limiter.Wait(t.Context()))
	require.Equal(t, 1.0, testutil.ToFloat64(e.Metrics.Closed.WithLabelValues(string(reason))))
}

func good() error { return nil }

// A stream ends if storage fails for half a minute.
func TestStorageAwayForTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &source{err: errors.New("away")}
		start := time.Now()
		e, in := run(t, s, good)
		beat, err := in.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, ":", beat[:1])
		require.Equal(t, 15*time.Second, time.Since(start))
		_, _ = io.Copy(io.Discard, in)
		require.WithinRange(t, time.Now(), start.Add(30*time.Second), start.Add(35*time.Second))
		ended(t, e, Storage)
		require.Less(t, s.asks.Load(), int64(20))
	})
}

// Storage may know of a revocation before the notification arrives. It then refuses the read, and the stream ends.
func TestRefusedReadEndsStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, in := run(t, &source{err: job.Errorf(job.CodeKeyDisabled, "The key was revoked.")}, good)
		_, _ = io.Copy(io.Discard, in)
		ended(t, e, Unauthorized)
	})
}

// A revoked key ends a stream at the next heartbeat, even while the reader is slow.
func TestKeyIsCheckedWithinAPage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, events := &source{}, 0
		var revoked atomic.Bool
		e, in := run(t, s, func() error {
			if revoked.Load() {
				return job.Errorf(job.CodeKeyDisabled, "The key was revoked.")
			}
			return nil
		})
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			if strings.HasPrefix(line, "data: ") {
				events++
				revoked.Store(true)
				require.LessOrEqual(t, int(s.read.Load()), events+2, "it does not read ahead")
				time.Sleep(4 * time.Second)
			}
		}
		require.LessOrEqual(t, events, 6)
		ended(t, e, Unauthorized)
	})
}
