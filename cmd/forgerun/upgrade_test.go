package main

import (
	"bytes"
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/repo"
)

// The version before: its last commit, and the newest schema that it knows.
const (
	versionBefore = "02b5b6b21c4e813d234ba5eb8a170d0849bb24e9"
	schemaBefore  = 6
)

// buildVersionBefore builds the program of the version before, out of the
// history. Where that is missing, as in a shallow clone, the test is skipped.
func buildVersionBefore(t *testing.T) string {
	t.Helper()
	root := filepath.Join("..", "..")
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "cat-file", "-e", versionBefore+"^{commit}").Run(); err != nil {
		t.Skip("the version before is not in the history here: ", err)
	}
	dir := t.TempDir()
	archive, err := exec.CommandContext(t.Context(), "git", "-C", root, "archive", versionBefore).Output()
	require.NoError(t, err)
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	require.NoError(t, unpack.Run())
	program := filepath.Join(dir, "forgerun.before")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", program, "./cmd/forgerun")
	build.Dir = dir
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// startBefore starts a process of the version before.
func (s *stack) startBefore(program, role string) *proc {
	s.t.Helper()
	p := startProgram(s.t, program, s.env, s.knownSecrets, role)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = append(s.procs, p)
	return p
}

// mixed is a job of one of several kinds.
func mixed(key string) string {
	kinds := []string{"SUCCESS_FAST", "PAYLOAD_SMALL", "RETRY_ON_FAIL", "FAIL_IMMEDIATE"}
	return execute(kinds[int(key[0])%len(kinds)], `"auto_retry":true`, `"idempotency_key":"`+key+`"`)
}

// A database that the version before filled is migrated while its processes are
// at work; processes of this version come beside them, and then the old ones go. Then
// all of it the other way.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	program := buildVersionBefore(t)
	s := newStack(t)
	s.http = &http.Client{Timeout: patience} // the version before answers by a document of its own
	require.NoError(t, repo.Migrate(s.ctx(), s.databaseURL, schemaBefore))
	apiBefore, workerBefore := s.startBefore(program, "api"), s.startBefore(program, "worker")
	apiBefore.waitAPI()
	workerBefore.logged("worker registered")
	u := s.newUser(apiBefore)
	ended := func(worker *proc) int {
		return s.count(`SELECT count(*) FROM reports WHERE worker_id = $1`, worker.workerID())
	}
	const enough = 100
	loadBefore := u.startLoad(func() *proc { return apiBefore }, 2, mixed)
	eventually(t, "the version before ends jobs", func() bool { return ended(workerBefore) >= enough })

	require.NoError(t, repo.Migrate(s.ctx(), s.databaseURL, -1))
	migrated := ended(workerBefore)
	eventually(t, "the version before goes on", func() bool { return ended(workerBefore) >= migrated+enough })

	api, worker := s.startAPI(), s.startWorker()
	loadNow := u.startLoad(func() *proc { return api }, 2, mixed)
	beside := ended(workerBefore)
	eventually(t, "both versions end jobs", func() bool { return ended(workerBefore) >= beside+enough && ended(worker) >= enough })
	for _, p := range []*proc{apiBefore, api} { // each version reads what the other wrote
		for _, id := range s.acceptedIDs()[:20] {
			require.Equal(t, http.StatusOK, u.call(p, "GET", "/v1/jobs/"+id, "").status)
		}
	}

	require.Empty(t, loadBefore.stop())
	for _, p := range []*proc{apiBefore, workerBefore} {
		p.terminate()
		require.Zero(t, p.exitCode())
	}
	last := ended(worker)
	eventually(t, "this version goes on alone", func() bool { return ended(worker) >= last+enough })

	// And back: processes of the version before take over again, on the schema as it is now.
	apiAgain, workerAgain := s.startBefore(program, "api"), s.startBefore(program, "worker")
	apiAgain.waitAPI()
	workerAgain.logged("worker registered")
	loadAgain := u.startLoad(func() *proc { return apiAgain }, 2, mixed)
	require.Empty(t, loadNow.stop())
	for _, p := range []*proc{api, worker} {
		p.terminate()
		require.Zero(t, p.exitCode())
	}
	last = ended(workerAgain)
	eventually(t, "the version before goes on alone", func() bool { return ended(workerAgain) >= last+enough })
	require.Empty(t, loadAgain.stop())
	s.awaitFinal(s.acceptedIDs()...)
	require.Equal(t, len(s.acceptedIDs()), s.count(`SELECT count(*) FROM jobs`))
	at := `SELECT count(*) FROM reports r JOIN events a USING (job_id, attempt) JOIN events b USING (job_id, attempt)
		WHERE r.worker_id = $1 AND a.event_name = 'job.assigned' AND b.event_name = 'job.running' AND a.occurred_at `
	require.Zero(t, s.count(at+`<> b.occurred_at`, workerBefore.workerID()), "the version before starts jobs with their claim")
	require.Zero(t, s.count(at+`>= b.occurred_at`, worker.workerID()), "this one after it")
	s.checkInvariants()
}
