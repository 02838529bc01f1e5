//go:build slow

package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock moves through a year of hourly jobs in steps of a day. After each step, exactly the due jobs are QUEUED, with their due time.
// No job is queued twice.
func TestAYearOfHourlyJobs(t *testing.T) {
	const days, hours, batch = 365, 24, 730
	s, api, u := newService(t, testBed, env{"FORGERUN_RATE_LIMIT_PER_MINUTE": "100000"})
	start := u.moveClock(api, `{"freeze":true}`).Now
	for first := 0; first < days*hours; first += batch {
		var jobs []string
		for n := first + 1; n <= first+batch; n++ {
			jobs = append(jobs, customAt(start.Add(time.Duration(n)*time.Hour)))
		}
		u.submitBatch(api, `{"jobs":[`+strings.Join(jobs, ",")+`]}`)
	}
	for day := 1; day <= days; day++ {
		u.moveClock(api, `{"advance":"24h"}`)
		require.Equal(t, day*hours, s.count(`SELECT count(*) FROM jobs WHERE state = 'QUEUED' AND queued_at = execution_at`), "day %d", day)
		require.Equal(t, (days-day)*hours, s.count(`SELECT count(*) FROM jobs WHERE state = 'CREATED'`), "day %d", day)
	}
	require.Equal(t, days*hours, s.count(`SELECT count(*) FROM events WHERE event_name = 'job.queued'`), "each once")
	require.Zero(t, s.count(`SELECT count(*) FROM events e JOIN jobs j USING (job_id)
		WHERE event_name = 'job.queued' AND occurred_at <> execution_at`))
}

// The recipes of docs/reference/testbed.md work.
func TestClockRecipes(t *testing.T) {
	s := newStack(t, testBed)
	api, _, _ := s.startDelivering()
	recipes := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "../../examples/go/clock")
	recipes.Env = append(os.Environ(), "FORGERUN_URL="+api.url)
	said, err := recipes.CombinedOutput()
	require.NoError(t, err, string(said))
	require.Equal(t, 5, strings.Count(string(said), "--- PASS"), string(said))
}
