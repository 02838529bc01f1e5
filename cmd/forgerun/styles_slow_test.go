//go:build slow

package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/fault"
)

// clientStyles returns the commands of ten clients that follow the documentation in different ways.
func clientStyles(t *testing.T) map[string][]string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "styles")
	runIn(t, ".", nil, "go", "build", "-o", program, "./testdata/styles")
	commands := map[string][]string{"curl": {"sh", filepath.Join("testdata", "styles", "curl.sh")}}
	for _, style := range []string{
		"long-poll", "poll", "hint-and-read", "list", "batch", "stream", "webhook", "pool", "two-processes",
	} {
		commands[style] = []string{program, style}
	}
	return commands
}

// No correct client breaks a rule, under any fault profile. Clients with the same profile and seed run in parallel, because they mostly
// wait.
func TestCorrectStylesAreNotBlamed(t *testing.T) {
	s, api, _ := newDelivering(t, withTestbed, env{"FORGERUN_TIME_SCALE": "1", "FORGERUN_WORKER_CONCURRENCY": "32"})
	commands := clientStyles(t)
	for _, profile := range fault.Profiles {
		for seed := 1; seed <= seeds(); seed++ {
			t.Run(fmt.Sprintf("%s/%d", profile, seed), func(t *testing.T) {
				parallelIfMany(t)
				var all sync.WaitGroup
				for style, command := range commands {
					all.Go(func() {
						t.Run(style, func(t *testing.T) { s.requireBlameless(t, api, style, command, profile, seed) })
					})
				}
				all.Wait()
			})
		}
	}
}

func (s *stack) requireBlameless(t *testing.T, api *proc, style string, command []string, profile fault.Profile, seed int) {
	t.Helper()
	if style == "curl" {
		if missing := missingProgram("curl", "install curl"); missing != "" {
			t.Skip(missing)
		}
	}
	said, v, broken, err := s.runJudged(t, api, command, profile, seed)
	requireEnded(t, profile, said, err)
	require.Empty(t, broken, said)
	learned := slices.ContainsFunc(v.Results, func(r verdict.Result) bool {
		return r.Rule == "outcome-learned" && r.Status == verdict.OK
	})
	require.True(t, learned || err != nil, "%s\n%+v", said, v)
}

// requireEnded checks that the client succeeded. If the profile refuses some requests permanently, the client may also exit with 1.
func requireEnded(t *testing.T, profile fault.Profile, said string, err error) {
	t.Helper()
	if exit := (&exec.ExitError{}); profile.MayGiveUp() && errors.As(err, &exit) && exit.ExitCode() == 1 {
		return
	}
	require.NoError(t, err, said)
}
