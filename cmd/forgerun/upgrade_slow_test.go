//go:build slow

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
)

// release is a program file and the version of its newest migration.
type release struct {
	program string
	schema  int
}

// releases returns the newest tagged release and the program of the working tree. Without a tag, `before` is the working tree, and `next`
// is the working tree with one more migration.
func releases(t *testing.T) (before, next release) {
	t.Helper()
	tree := release{testkit.Program(t, "forgerun"), migrationsIn(t, "../..")}
	tag, err := exec.CommandContext(t.Context(), "git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^").Output()
	if err != nil {
		return tree, withMigration(t, "testdata/upgrade/next.sql", tree.schema+1)
	}
	return ofTag(t, strings.TrimSpace(string(tag))), tree
}

func migrationsIn(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "migrations", "*.sql"))
	require.NoError(t, err)
	return len(files)
}

func withMigration(t *testing.T, file string, version int) release {
	t.Helper()
	from, err := filepath.Abs(file)
	require.NoError(t, err)
	to, err := filepath.Abs(fmt.Sprintf("../../migrations/%05d_next.sql", version))
	require.NoError(t, err)
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{to: from}})
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600))
	return release{buildIn(t, "../..", "-overlay", filepath.Join(dir, "overlay.json")), version}
}

func buildIn(t *testing.T, tree string, options ...string) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "forgerun")
	arguments := append([]string{"build", "-buildvcs=false", "-o", program}, options...)
	build := exec.CommandContext(t.Context(), "go", append(arguments, "./cmd/forgerun")...)
	build.Dir = tree
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)
	return program
}

func ofTag(t *testing.T, tag string) release {
	t.Helper()
	dir := t.TempDir()
	archive := exec.CommandContext(t.Context(), "git", "archive", tag)
	archive.Dir = "../.."
	files, err := archive.Output()
	require.NoError(t, err)
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(files)
	require.NoError(t, unpack.Run())
	return release{buildIn(t, dir), migrationsIn(t, dir)}
}

type installation struct{ api, worker, hooks *proc }

func (i installation) all() []*proc { return []*proc{i.api, i.worker, i.hooks} }

func (s *stack) install(r release) installation {
	s.t.Helper()
	i := installation{s.startOf(r, "api"), s.startOf(r, "worker"), s.startOf(r, "deliverer")}
	i.api.waitAPI()
	i.worker.logged("worker registered")
	i.hooks.logged("delivering")
	return i
}

func (s *stack) startOf(r release, arguments ...string) *proc {
	s.t.Helper()
	p := startProgram(s.t, r.program, s.env, s.knownSecrets, arguments...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.procs = append(s.procs, p)
	return p
}

func (s *stack) migrate(r release, version int, arguments ...string) {
	s.t.Helper()
	p := s.startOf(r, append([]string{"migrate"}, arguments...)...)
	require.Zero(s.t, p.exitCode(), p.log)
	require.Contains(s.t, p.stdout.String(), fmt.Sprintf("The schema is at version %d.", version))
}

// awaitWork waits until each installation's worker has ended 100 attempts and 100 events are delivered.
func (s *stack) awaitWork(what string, installations ...installation) {
	s.t.Helper()
	const enough = 100
	delivered := func() int { return s.count(`SELECT count(*) FROM deliveries WHERE state = 'DELIVERED'`) }
	ended := func(i installation) int {
		return s.count(`SELECT count(*) FROM reports WHERE worker_id = $1`, i.worker.workerID())
	}
	first, before := delivered(), make([]int, len(installations))
	for i := range installations {
		before[i] = ended(installations[i])
	}
	eventually(s.t, what, func() bool {
		for i := range installations {
			if ended(installations[i]) < before[i]+enough {
				return false
			}
		}
		return delivered() >= first+enough
	})
	for _, i := range installations {
		for _, p := range i.all() {
			status, body := p.admin("/readyz")
			require.Equal(s.t, http.StatusOK, status, "%s: %s", what, body)
		}
	}
}

func (i installation) stopAll() {
	for _, p := range i.all() {
		p.stop()
	}
}

// Under load, the schema is migrated while processes of the old release run. Processes of the next release start, and the old ones stop.
// Then the upgrade is undone: the old release runs again, and the schema is migrated back. No request is refused, and no job is lost.
func TestUpgradeUnderLoadAndBack(t *testing.T) {
	t.Parallel()
	before, next := releases(t)
	s := newStackOn(t, emptyDatabase(t), hooks, env{"FORGERUN_PUBLIC_URL": "http://forgerun.test"})
	s.http = &http.Client{Timeout: patience} // do not check responses, because each release has its own OpenAPI document
	s.migrate(before, before.schema)
	old := s.install(before)
	u := s.newUser(old.api)
	receiver := newReceiver(t, nil)
	u.subscribe(old.api, receiver.url, "job.succeeded", "job.failed", "job.retried")
	load := func(i installation) *load {
		return u.startLoad(func() *proc { return i.api }, 2, func(key string) string {
			kinds := []string{"SUCCESS_FAST", "PAYLOAD_SMALL", "RETRY_ON_FAIL", "FAIL_IMMEDIATE"}
			return execute(kinds[int(key[0])%len(kinds)], `"auto_retry":true`, `"idempotency_key":"`+key+`"`)
		})
	}
	oldLoad := load(old)
	s.awaitWork("the old processes work", old)

	s.migrate(next, next.schema)
	s.awaitWork("the old processes work with the new schema", old)
	now := s.install(next)
	nowLoad := load(now)
	s.awaitWork("both work", old, now)
	for _, i := range []installation{old, now} { // each release reads jobs of the other
		for _, id := range s.acceptedIDs()[:20] {
			require.Equal(t, http.StatusOK, u.call(i.api, "GET", "/v1/jobs/"+id, "").status)
		}
	}
	require.Empty(t, oldLoad.stop())
	old.stopAll()
	s.awaitWork("the new processes work alone", now)

	old = s.install(before)
	oldLoad = load(old)
	s.awaitWork("both work again", old, now)
	require.Empty(t, nowLoad.stop())
	now.stopAll()
	s.awaitWork("the old processes work alone with the new schema", old)
	s.migrate(next, before.schema, "--to", fmt.Sprint(before.schema))
	s.awaitWork("they work with the old schema", old)
	again := s.install(before)
	againLoad := load(again)
	s.awaitWork("new processes of the old release work with the old schema", again)

	require.Empty(t, oldLoad.stop())
	require.Empty(t, againLoad.stop())
	accepted := s.acceptedIDs()
	s.awaitFinal(accepted...)
	require.Equal(t, len(accepted), s.count(`SELECT count(*) FROM jobs`))
	require.Equal(t, len(accepted), s.count(`SELECT count(*) FROM idempotency_keys WHERE resource_id = ANY($1::uuid[])`, accepted))
	s.awaitDeliveries()
	require.Zero(t, s.count(`SELECT count(*) FROM deliveries WHERE state <> 'DELIVERED'`))
	got := map[string]bool{}
	for _, d := range receiver.all() {
		got[d.id()] = true
	}
	require.Len(t, got, s.count(`SELECT count(*) FROM deliveries`))
	s.checkInvariants()
}
