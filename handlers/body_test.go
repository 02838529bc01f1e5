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

	"github.com/forgerun/forgerun/job"
)

// bodyHead is a submission up to its body of n bytes.
func bodyHead(key string, n int) string {
	return "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + key +
		"\r\nContent-Type: application/json\r\n" + framing(n, false)
}

// taken is the memory for the bodies that are under way.
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
	for _, head := range []string{
		bodyHead("nobody's", 1<<20), "POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		c := w.dial()
		_, err := io.WriteString(c, head+"1")
		require.NoError(t, err)
		a := w.read(bufio.NewReader(c))
		a.requireProblem(t, job.CodeInvalidCredentials)
		require.True(t, a.Close)
	}
	c := w.dial()
	r := bufio.NewReader(c)
	for range 2 { // a small body is skipped, and the connection used again
		_, err := io.WriteString(c, bodyHead("nobody's", len(shortBody))+shortBody)
		require.NoError(t, err)
		w.read(r).requireProblem(t, job.CodeInvalidCredentials)
	}
}

// What is refused for its client's rate or for the load of the service is
// refused before its body.
func TestRefusedBodyIsNotAwaited(t *testing.T) {
	t.Parallel()
	full := &fakeAdmission{full: true}
	w := newWorld(t, func(_ *Config, d *Deps) { d.Admission = full }).start()
	c := w.dial()
	_, err := io.WriteString(c, bodyHead(goodKey, 1<<20)+"{")
	require.NoError(t, err)
	w.read(bufio.NewReader(c)).requireProblem(t, job.CodeQueueFull)
}

// Memory is taken for what has arrived, not for what was announced, and all
// bodies together have a bound, as have those of one client.
func TestMemoryForBodiesIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config, _ *Deps) { c.MaxBodiesBytes = 4 * 70 << 10 }).start()
	const announced = 1 << 20
	announce := func(arrived int) io.ReadWriteCloser {
		c := w.dial()
		_, err := io.WriteString(c, bodyHead(goodKey, announced)+strings.Repeat(" ", arrived))
		require.NoError(t, err)
		return c
	}
	taken := func(n int) func() bool { return func() bool { return w.server.bodies.sum() == n } }

	small := announce(100)
	require.Zero(t, w.server.bodies.sum(), "a small part of a body costs nothing but its connection")
	first := announce(20 << 10)
	require.Eventually(t, taken(64<<10), patience, time.Millisecond)

	second := announce(20 << 10)
	a := w.read(bufio.NewReader(second))
	a.requireProblem(t, job.CodeQueueFull)
	require.Equal(t, "1", a.Header.Get("Retry-After"))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", shortBody).StatusCode, "small ones pass")

	require.NoError(t, first.Close())
	require.NoError(t, small.Close())
	require.Eventually(t, taken(0), patience, time.Millisecond, "what was taken is given back")
	require.Empty(t, w.server.bodies.of)

	large := fmt.Sprintf(`{"type":"EXECUTE","params":{"a":%q}}`, strings.Repeat("a", 60<<10))
	require.Equal(t, 202, w.send("POST", "/v1/jobs", large).StatusCode)
	require.Eventually(t, taken(0), patience, time.Millisecond)
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

// arriving tells when a request is known, before its body is read.
type arriving struct {
	Clients
	known chan struct{}
}

func (a arriving) Authenticate(ctx context.Context, bearer string) (job.Caller, error) {
	a.known <- struct{}{}
	return a.Clients.Authenticate(ctx, bearer)
}

// The time of a request is for its work: it does not run out while its body
// arrives.
func TestSlowBodyKeepsTheTimeOfItsRequest(t *testing.T) {
	t.Parallel()
	deadline := make(chan time.Time, 1)
	known := make(chan struct{}, 1)
	w := newWorld(t, func(c *Config, d *Deps) {
		c.RequestTimeout = time.Minute
		d.Clients = arriving{d.Clients, known}
	})
	w.jobs.submit = func(ctx context.Context, _ job.Request) (job.Receipt, error) {
		at, _ := ctx.Deadline()
		deadline <- at
		return job.Receipt{JobID: jobID, State: job.Queued, CreatedAt: now}, nil
	}
	w.start()
	c := w.dial()
	_, err := io.WriteString(c, bodyHead(goodKey, len(shortBody))+shortBody[:1])
	require.NoError(t, err)
	<-known
	time.Sleep(5 * time.Millisecond) // the body takes its time
	last := time.Now()
	_, err = io.WriteString(c, shortBody[1:])
	require.NoError(t, err)
	require.Equal(t, 202, w.read(bufio.NewReader(c)).StatusCode)
	require.False(t, (<-deadline).Before(last.Add(time.Minute)), "it begins anew")
}
