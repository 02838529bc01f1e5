//go:build slow && linux

package main

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/verdict"
)

// A session with the maximum number of requests needs at most 200 MB of memory, also while it is judged.
func TestLargeSessionIsJudged(t *testing.T) {
	s, api, u := newWorking(t, withTestbed)
	session := u.startSession(api, "")
	jobs := u.submitMany(api, 1000, execute("SUCCESS_FAST"))
	s.await("SUCCEEDED", jobs...)
	s.exec(`INSERT INTO testbed_exchanges
		SELECT client_id, session_id, n, json_strip_nulls(json_build_object(
			'start', to_char(created_at + n * interval '1 ms', 'YYYY-MM-DD"T"HH24:MI:SS.USZ'),
			'end', to_char(created_at + n * interval '1 ms' + interval '4321 us', 'YYYY-MM-DD"T"HH24:MI:SS.USZ'),
			'method', CASE WHEN kind = 0 THEN 'POST' ELSE 'GET' END,
			'path', CASE WHEN kind <= 5 THEN '/v1/jobs' WHEN kind = 6 THEN '/v1/jobs/' || id || '/events' ELSE '/v1/jobs/' || id END,
			'query', CASE WHEN kind BETWEEN 1 AND 5 THEN 'limit=20&state=' || n % 9 END,
			'operation', CASE WHEN kind = 0 THEN 'submitJob' WHEN kind <= 5 THEN 'listJobs' WHEN kind = 6 THEN 'jobEvents' ELSE 'getJob' END,
			'role', CASE WHEN kind = 0 THEN 'submit' WHEN kind <= 5 THEN 'list' WHEN kind = 6 THEN 'stream' ELSE 'read' END,
			'key', CASE WHEN kind = 0 THEN md5('key' || id) END, 'body', CASE WHEN kind = 0 THEN md5('body' || id) END,
			'correlation', CASE WHEN kind = 0 THEN 'order-' || id END, 'accept', 'application/json, application/problem+json',
			'if_none_match', CASE WHEN kind > 6 THEN '"' || md5(id || n / 20000) || '"' END,
			'key_id', client_id, 'connection', n % 8, 'reused', true, 'job', CASE WHEN kind = 0 OR kind > 5 THEN id END,
			'etag', CASE WHEN kind > 6 THEN '"' || md5(id || n / 20000) || '"' END,
			'made', CASE WHEN kind = 0 THEN id END, 'retry_after', CASE WHEN kind > 6 THEN 1 END,
			'fault', CASE WHEN kind = 0 AND n % 300 = 0 THEN '{"close":"after_commit"}'::json END,
			'stream', CASE WHEN kind = 6 THEN json_build_object('events', 2, 'ids', ARRAY[md5('a' || n), md5('b' || n)]) END,
			'shown', CASE WHEN kind BETWEEN 1 AND 5 THEN ($1::text[])[n % 900 + 1:n % 900 + 20]
				WHEN kind IN (0, 6) OR kind > 6 AND n % 7 = 0 THEN ARRAY[id] END,
			'status', CASE WHEN kind = 0 THEN 202 WHEN kind > 6 AND n % 7 <> 0 THEN 304 ELSE 200 END))
		FROM testbed_sessions, LATERAL (SELECT n, n / 1000 % 100 AS kind, id
			FROM generate_series(exchanges + 1, $2) n JOIN unnest($1::text[]) WITH ORDINALITY j(id, place) ON place = n % 1000 + 1) x`,
		jobs, verdict.MaxExchanges)
	bytes := s.count(`SELECT sum(octet_length(exchange::text)) FROM testbed_exchanges`)
	require.Less(t, bytes, verdict.MaxBytes)
	s.exec(`UPDATE testbed_sessions SET exchanges = $1, bytes = $2`, verdict.MaxExchanges, bytes)

	before := memoryOf(t, api, "VmRSS")
	began := time.Now()
	u.expect(api, http.StatusOK, "POST", "/v1/testbed/sessions/"+session+"/end", "")
	ended := time.Now()
	a := u.expect(api, http.StatusOK, "GET", "/v1/testbed/sessions/"+session+"/verdict", "")
	t.Logf("%d bytes; ended after %s, judged after %s; %d kB before, %d kB at most", bytes, ended.Sub(began), time.Since(ended),
		before, memoryOf(t, api, "VmHWM"))
	require.EqualValues(t, verdict.MaxExchanges, a.value("exchanges"))
	require.Less(t, memoryOf(t, api, "VmHWM")-before, 200_000)
}

func memoryOf(t *testing.T, p *proc, line string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	found := regexp.MustCompile(line + `:\s+(\d+) kB`).FindStringSubmatch(string(status))
	require.NotNil(t, found)
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}
