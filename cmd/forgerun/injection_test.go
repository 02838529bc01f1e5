package main

import (
	"bufio"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// nasty contains texts that are dangerous without quoting in SQL, HTML, shells or logs.
var nasty = []string{
	`'; DROP TABLE jobs; --`,
	`$1 $$ \'; SELECT pg_sleep(60)`,
	"line\r\nbreak {\"level\":\"ERROR\",\"msg\":\"forged\"}",
	"\x1b[31mred\x1b[0m \x1b]0;title\x07",
	`return redis.call('FLUSHALL')`,
	"\u2028\u202e\ufeff",
	`%s %d %!v(MISSING) {{.}} ${jndi:ldap://x}`,
}

// Promise: draft 3.9, 9.2
func TestHostileTextIsStoredAsItIs(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_LOG_LEVEL": "debug"})
	var ids []string
	for _, text := range nasty {
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		params := `{"text":` + string(quoted) + `,` + string(quoted) + `:1}`
		id := u.submit(api, execute("PAYLOAD_SMALL", `"params":`+params), "User-Agent", "x"+strings.Map(printable, text), "Accept-Language",
			strings.Map(printable, text))
		ids = append(ids, id)
		require.Equal(t, params, s.text(`SELECT params::text FROM jobs WHERE job_id = $1`, id), "byte by byte")
		require.Equal(t, text, u.get(api, id).value("params").(map[string]any)["text"])

		event := `{"type":"EMIT_EVENT","event":{"name":"mine","data":` + string(quoted) + `}}`
		ids = append(ids, u.submit(api, event))
		a := u.trySubmit(api, execute("PAYLOAD_SMALL", `"correlation_id":`+string(quoted)))
		a.requireProblem(t, http.StatusBadRequest, "RFA_JOB_VALIDATION_FAILED")
	}
	for _, callback := range []string{`http://example.com/';DROP%20TABLE%20jobs;--`, `https://example.com/a%0D%0Ab?x='$1`} {
		id := u.submit(api, execute("PAYLOAD_SMALL", `"callback":"`+callback+`"`, `"idempotency_key":"';DELETE/**/FROM/**/jobs;--`+callback[:5]+
			`"`))
		ids = append(ids, id)
		require.Equal(t, callback, s.text(`SELECT callback FROM jobs WHERE job_id = $1`, id))
	}
	for _, callback := range []string{`http://example.com/\r\nX: y`, `http://example.com/\u001b[31m`, `javascript:alert(1)`} {
		u.trySubmit(api, execute("PAYLOAD_SMALL", `"callback":"`+callback+`"`)).requireProblem(t, http.StatusBadRequest,
			"RFA_JOB_VALIDATION_FAILED")
	}
	s.await("SUCCEEDED", ids...)
	for _, text := range nasty {
		require.Equal(t, 1, s.count(`SELECT count(*) FROM events WHERE event_name = 'event.emitted' AND data ->> 'data' = $1`, text))
	}
	u.callRaw(api, "GET /v1/jobs/\x1b[31m%0d%0a'%3B HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\x1b[31m\r\nAuthorization: Bearer \x1b[31m'; --\r\n")
	u.callRaw(api, "BREW\x1b /v1/jobs HTTP/1.1\r\nHost: x\r\n")
	s.checkInvariants()
}

func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return '.'
	}
	return r
}

// callRaw sends a raw request head and returns the status line. The request must be refused with a status from 400 to 409.
func (u *user) callRaw(api *proc, head string) string {
	u.s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(api.url, "http://"))
	require.NoError(u.s.t, err)
	defer func() { _ = conn.Close() }()
	_, err = conn.Write([]byte(head + "Connection: close\r\n\r\n"))
	require.NoError(u.s.t, err)
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(u.s.t, err)
	require.Contains(u.s.t, line, " 40")
	return line
}

func TestSecretsStayOutOfLogsAndRedis(t *testing.T) {
	s, api, u := newWorking(t, env{"FORGERUN_LOG_LEVEL": "debug", "FORGERUN_ADMIN_TOKEN": "planted-operator-token"})
	planted := []string{"planted-in-params", "planted-in-event", "planted-bad-key", "planted-in-query", "planted-in-body",
		"planted-operator-token"}
	s.secret(planted...)
	ids := []string{
		u.submit(api, execute("SUCCESS_FAST", `"params":{"password":"planted-in-params"}`)),
		u.submit(api, execute("FAIL_IMMEDIATE", `"params":{"password":"planted-in-params"}`)),
		u.submit(api, `{"type":"EMIT_EVENT","event":{"name":"mine","data":"planted-in-event"}}`),
	}
	s.awaitFinal(ids...)
	require.Equal(t, http.StatusUnauthorized, u.look(api, "planted-bad-key").status)
	require.Equal(t, http.StatusUnauthorized, u.look(api, u.key[:len(u.key)-1]+"!").status)
	require.Equal(t, http.StatusBadRequest, u.call(api, "GET", "/v1/jobs/"+ids[0]+"?token=planted-in-query", "").status)
	require.Equal(t, http.StatusBadRequest, u.trySubmit(api, `{"planted-in-body`).status)
	require.Equal(t, http.StatusBadRequest, u.trySubmit(api, execute("SUCCESS_FAST", `"unknown":"planted-in-body"`)).status)
	operator := &user{s: s, key: "planted-operator-token"}
	renewed := operator.expect(api, http.StatusOK, "POST", "/v1/clients/"+u.id+"/keys/renew", "")
	s.secret(renewed.text("api_key"))
	s.exec(`ALTER TABLE events RENAME TO planted_in_sql`)
	failed := u.trySubmit(api, execute("SUCCESS_FAST", `"params":{"password":"planted-in-params"}`))
	require.Equal(t, http.StatusInternalServerError, failed.status, failed.body)
	for _, internal := range []string{"planted_in_sql", "events", "SQLSTATE", "ERROR:", ".go", "goroutine"} {
		require.NotContains(t, failed.body, internal)
	}
	s.exec(`ALTER TABLE planted_in_sql RENAME TO events`)
	require.Zero(t, s.count(`SELECT count(*) FROM api_keys k WHERE k::text LIKE '%' || $1 || '%'`, u.key[len("frk_")+13:]),
		"only a hash is stored")

	written := readText(t, s.appendOnlyFile())
	require.Contains(t, written, ids[0], "what was sent to Redis is in its append-only file")
	for _, secret := range s.knownSecrets() {
		require.NotContains(t, written, secret)
	}
	s.checkInvariants()
}
