package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

func TestAPITerminatedUnderLoad(t *testing.T) {
	s, api, u := newService(t)
	load := u.startLoad(func() *proc { return api }, 16, func(key string) string {
		return execute("PAYLOAD_SMALL", `"idempotency_key":"`+key+`"`)
	})
	eventually(t, "jobs are accepted", func() bool { return len(s.acceptedIDs()) > 100 })
	api.stop()
	for _, a := range load.stop() {
		require.Equal(t, http.StatusServiceUnavailable, a.status, a.body)
	}
	require.Len(t, s.acceptedIDs(), s.count(`SELECT count(*) FROM jobs WHERE job_id = ANY($1::uuid[])`, s.acceptedIDs()))
	s.startWorker()
	s.await("SUCCEEDED", s.acceptedIDs()...)
	s.checkInvariants()
}

func TestTerminatedAPICompletesRequests(t *testing.T) {
	s, api, u := newService(t)
	unlock := s.lock(`LOCK TABLE idempotency_keys IN ACCESS EXCLUSIVE MODE`)
	answers := make(chan answer, 1)
	go func() { answers <- u.trySubmit(api, execute("PAYLOAD_SMALL", `"idempotency_key":"k"`)) }()
	eventually(t, "the insert waits", func() bool {
		return s.count(`SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'idempotency_keys'::regclass`) > 0
	})
	api.terminate()
	eventually(t, "new requests are not accepted", func() bool { return u.call(api, "GET", "/healthz", "").err != nil })
	unlock()
	a := <-answers
	require.NoError(t, a.err)
	require.Equal(t, http.StatusAccepted, a.status, a.body)
	require.Zero(t, api.exitCode())
	s.startWorker()
	s.await("SUCCEEDED", a.text("job_id"))
	s.checkInvariants()
}

func TestWorkerTerminatedUnderLoad(t *testing.T) {
	s, api, u := newService(t, env{"FORGERUN_TIME_SCALE": "0.2", "FORGERUN_SHUTDOWN_GRACE": "4s"})
	worker := s.startWorker()
	long := u.submitMany(api, 2, execute("RUNS_LONG")) // takes 22 s
	s.await("RUNNING", long...)
	short := u.submitMany(api, 2, execute("SUCCESS_NORMAL")) // takes 2 s
	s.await("RUNNING", short...)
	waiting := u.submitMany(api, 20, execute("PAYLOAD_SMALL"))
	worker.stop()

	require.Equal(t, 2, s.countJobs(short, "SUCCEEDED"), "jobs that end within the grace period succeed")
	for _, id := range long {
		u.requireLost(api, id, "worker-shutdown")
		u.retry(api, id)
	}
	require.Zero(t, s.count(`SELECT count(*) FROM jobs WHERE worker_id IS NOT NULL`))
	require.Equal(t, "STOPPED", s.text(`SELECT state FROM workers`))
	s.startWorker(env{"FORGERUN_TIME_SCALE": "0"})
	s.await("SUCCEEDED", append(waiting, long...)...)
	s.checkInvariants()
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s, api, u := newService(t)
	worker := s.startWorker(quickLease, slow, env{"FORGERUN_SHUTDOWN_GRACE": "10m"})
	id := u.submitAndAwait(api, "RUNNING", execute("SUCCESS_SLOW"))
	worker.terminate()
	worker.logged("stopping")
	eventually(t, "a further signal ends the process", func() bool {
		_ = worker.cmd.Process.Signal(syscall.SIGTERM) // repeat: the kernel may merge signals that arrive together
		return !worker.running()
	})
	require.Equal(t, -1, worker.exitCode())
	require.Equal(t, syscall.SIGTERM, worker.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	s.await("FAILED", id)
	u.requireLost(api, id, "worker-lost")
	u.retry(api, id)
	s.startWorker()
	s.await("SUCCEEDED", id)
	s.checkInvariants()
}

func startDev(t *testing.T, dir string) *proc {
	t.Helper()
	p := startProc(t, env{
		"FORGERUN_DATA_DIR": dir, "FORGERUN_HTTP_ADDR": "127.0.0.1:0", "FORGERUN_ADMIN_ADDR": "127.0.0.1:0",
		"FORGERUN_LOG_FORMAT": "json", "FORGERUN_TIME_SCALE": "0",
	}, func() []string { return nil }, "dev") // no secrets: dev prints its API key on purpose
	p.waitAPI()
	eventually(t, "dev is ready", func() bool { _, err := os.Stat(filepath.Join(dir, "dev.json")); return err == nil })
	return p
}

func TestDevTerminatedUnderLoadAndStartedAgain(t *testing.T) {
	t.Parallel()
	base := tempDir(t)
	dir := filepath.Join(base, "data")
	s := &stack{t: t, http: http.DefaultClient, sent: map[string]bool{}, accepted: map[string]bool{}}
	dev := startDev(t, dir)
	u := &user{s: s}
	readLogin := func() {
		var login struct {
			ClientID string `json:"client_id"`
			APIKey   string `json:"api_key"`
		}
		content, err := os.ReadFile(filepath.Join(dir, "dev.json"))
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(content, &login))
		u.id, u.key = login.ClientID, login.APIKey
	}
	readLogin()
	first := u.key
	load := u.startLoad(func() *proc { return dev }, 4, func(key string) string {
		return execute("PAYLOAD_SMALL", `"idempotency_key":"`+key+`"`)
	})
	eventually(t, "jobs are accepted", func() bool { return len(s.acceptedIDs()) > 50 })
	servers := childrenOf(t, dev.cmd.Process.Pid)
	require.Len(t, servers, 2, "Postgres and Redis")
	dev.stop()
	load.stop()
	for _, pid := range servers {
		require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "a server is left")
	}
	require.NoFileExists(t, filepath.Join(dir, "dev.json"))

	dev = startDev(t, dir)
	readLogin()
	require.Equal(t, first, u.key, "the key is the same")
	for _, id := range append(s.acceptedIDs(), u.submit(dev, execute("PAYLOAD_SMALL", `"idempotency_key":"`+uuid.NewString()+`"`))) {
		eventually(t, "the job ends", func() bool { return u.get(dev, id).text("state") == "SUCCEEDED" })
	}
	dev.stop()
}

func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	if len(stats) == 0 {
		t.Skip("this system does not list its processes in /proc")
	}
	var children []int
	for _, stat := range stats {
		content, err := os.ReadFile(stat)
		if err != nil {
			continue // the process has ended
		}
		var id, parent int
		var name, state string
		if n, _ := fmt.Sscanf(string(content), "%d %s %s %d", &id, &name, &state, &parent); n == 4 && parent == pid {
			children = append(children, id)
		}
	}
	return children
}

func (s *stack) startUnread() (*proc, *os.File) {
	s.t.Helper()
	reader, writer, err := os.Pipe()
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = reader.Close() })
	p := newProc(s.t, testkit.Program(s.t, "forgerun"), s.env, "worker")
	p.cmd.Stderr = writer
	p.run(s.env, s.knownSecrets)
	require.NoError(s.t, writer.Close())
	s.mu.Lock()
	s.procs = append(s.procs, p)
	s.mu.Unlock()
	s.awaitCount("the worker is registered", 1, `SELECT count(*) FROM workers WHERE state = 'ALIVE'`)
	return p, reader
}

// Jobs run and SIGTERM works even if the worker's log pipe is full or closed.
func TestWorkerWithUnreadLog(t *testing.T) {
	t.Parallel()
	for name, dies := range map[string]bool{"full": false, "gone": true} {
		t.Run(name, func(t *testing.T) {
			s, api, u := newService(t, env{"FORGERUN_TIME_SCALE": "0.02", "FORGERUN_WORKER_CONCURRENCY": "32"})
			worker, log := s.startUnread()
			if dies {
				require.NoError(t, log.Close())
			}
			s.await("SUCCEEDED", u.submitMany(api, 200, execute("SUCCESS_FAST"))...) // each job logs three lines of 400 bytes
			last := u.submit(api, execute("SUCCESS_SLOW"))                           // takes 1.8 s
			s.await("RUNNING", last)
			worker.stop()
			s.await("SUCCEEDED", last)
			if !dies {
				text := make([]byte, 64<<10)
				n, err := log.Read(text)
				require.NoError(t, err)
				require.Positive(t, strings.Count(string(text[:n]), "job transition"))
			}
			s.checkInvariants()
		})
	}
}
