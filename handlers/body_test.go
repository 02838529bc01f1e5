package handlers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

// shortBody is a usual submission.
const shortBody = `{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`

// sum is the memory for the bodies that are under way.
func (m *bodyMemory) sum() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.taken
}

// A caller that is not known is answered before its body has come: it would
// otherwise hold memory and a connection for as long as it likes.
func TestNobodysBodyIsNotAwaited(t *testing.T) {
	t.Parallel()
	w := newWorld(t).start()
	nobodys := strings.Replace(submitHead, goodKey, "nobody's", 1)
	for _, head := range []string{nobodys + framing(1<<20, false), "POST /v1/jobs HTTP/1.1\r\nHost: x\r\n" + framing(0, true)} {
		a, _ := w.raw(head + "1")
		a.requireProblem(t, job.CodeInvalidCredentials)
		require.True(t, a.Close)
	}
	c := w.dial()
	r := bufio.NewReader(c)
	for range 2 { // a small body is skipped, and the connection used again
		w.write(c, nobodys+framing(len(shortBody), false)+shortBody)
		w.read(r).requireProblem(t, job.CodeInvalidCredentials)
	}
}

// What is refused for its client's rate or for the load of the service is
// refused before its body.
func TestRefusedBodyIsNotAwaited(t *testing.T) {
	t.Parallel()
	full := &fakeAdmission{full: true}
	w := newWorld(t, func(_ *Config, d *Deps) { d.Admission = full }).start()
	a, _ := w.raw(submitHead + framing(1<<20, false) + "{")
	a.requireProblem(t, job.CodeQueueFull)
}

// Memory is taken for what has arrived, not for what was announced, and all
// bodies together have a bound, as have those of one client.
func TestMemoryForBodiesIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodiesBytes = 4 * 70 << 10 }).start()
	announce := func(arrived int) io.ReadWriteCloser {
		c := w.dial()
		w.write(c, submitHead+framing(1<<20, false)+strings.Repeat(" ", arrived))
		return c
	}
	taken := func(n int, what string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return w.server.bodies.sum() == n })
	}
	small := announce(100)
	require.Zero(t, w.server.bodies.sum(), "a small part of a body costs nothing but its connection")
	first := announce(20 << 10)
	taken(64<<10, "memory is taken")
	a := w.read(bufio.NewReader(announce(20 << 10)))
	a.requireProblem(t, job.CodeQueueFull)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", shortBody).StatusCode, "small ones pass")

	require.NoError(t, first.Close())
	require.NoError(t, small.Close())
	taken(0, "what was taken is given back")
	require.Empty(t, w.server.bodies.of)
	large := fmt.Sprintf(`{"type":"EXECUTE","params":{"a":%q}}`, strings.Repeat("a", 60<<10))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", large).StatusCode)
	taken(0, "and that of a good one")
}

func TestBodyMemoryOfAllClients(t *testing.T) {
	t.Parallel()
	m := newBodyMemory(100)
	for i := range 4 {
		require.NoError(t, m.take(job.ID{byte(i)}, 25))
		require.ErrorContains(t, m.take(job.ID{byte(i)}, 1), "large request bodies")
	}
	require.ErrorContains(t, m.take(job.ID{9}, 1), "Too many large request bodies are under way")
	m.give(job.ID{1}, 25)
	require.NoError(t, m.take(job.ID{9}, 25))
}

// The time of a request is for its work: it does not run out while its body
// arrives.
func TestSlowBodyKeepsTheTimeOfItsRequest(t *testing.T) {
	t.Parallel()
	known, deadline := make(chan struct{}, 1), make(chan time.Time, 1)
	w := newWorld(t, func(c *Config, _ *Deps) { c.RequestTimeout = time.Minute })
	w.clients.seen = func(context.Context, string) { known <- struct{}{} }
	w.jobs.submit = func(ctx context.Context, _ job.Request) (job.Receipt, error) {
		at, _ := ctx.Deadline()
		deadline <- at
		return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil
	}
	w.start()
	c := w.dial()
	w.write(c, submitHead+framing(len(shortBody), false)+shortBody[:1])
	within(t, known)
	time.Sleep(5 * time.Millisecond) // the body takes its time
	last := time.Now()
	w.write(c, shortBody[1:])
	require.Equal(t, 202, w.read(bufio.NewReader(c)).StatusCode)
	require.False(t, within(t, deadline).Before(last.Add(time.Minute)), "it begins anew")
}
