package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type pending struct {
	conn net.Conn
	rest string
}

func (u *user) begin(api *proc, path, body string) pending {
	conn, err := net.Dial("tcp", strings.TrimPrefix(api.url, "http://"))
	require.NoError(u.s.t, err)
	u.s.t.Cleanup(func() { _ = conn.Close() })
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n\r\n%s", path, conn.RemoteAddr(), u.key, len(body), body[:1])
	require.NoError(u.s.t, err)
	return pending{conn, body[1:]}
}

func (p pending) finish(t *testing.T) int {
	_, err := p.conn.Write([]byte(p.rest))
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(p.conn), nil)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

// rotateKey creates a new key, and uses the new key to revoke the old one.
func (u *user) rotateKey(api *proc) {
	old := strings.Split(u.key, "_")[1]
	u.key = u.expect(api, http.StatusCreated, "POST", "/v1/clients/"+u.id+"/keys", `{"rotate":true}`).text("api_key")
	u.s.secret(u.key)
	u.expect(api, http.StatusOK, "POST", "/v1/clients/"+u.id+"/keys/revoke", `{"key_id":"`+old+`"}`)
}

// Pending requests end when their key is revoked, even if the process misses the notification.
func TestRevokedKeyEndsPendingRequests(t *testing.T) {
	s, api, client := newService(t)
	other := s.startAPI()
	s.revokeDuringRequests(api, other, client)
	s.dropKeyNotifications()
	s.revokeDuringRequests(api, other, s.newUser(api))
}

// dropKeyNotifications creates a trigger that closes all LISTEN connections before a key changes. Processes then miss the notification
// about the key.
func (s *stack) dropKeyNotifications() {
	s.exec(`CREATE FUNCTION dropKeyNotifications() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE query LIKE 'LISTEN%' AND datname = current_database(); RETURN NEW; END $$`)
	s.exec(`CREATE TRIGGER dropKeyNotifications BEFORE UPDATE ON api_keys FOR EACH ROW EXECUTE FUNCTION dropKeyNotifications()`)
}

// A revocation ends the key's streams and long polls in every process. No event is sent after the revocation.
// Promise: contract 14, 15
func TestRevokedKeyEndsStreamsAndWaits(t *testing.T) {
	s, api, client := newService(t)
	other := s.startAPI()
	s.revokeDuringStreamsAndWaits(api, other, client)
	s.dropKeyNotifications()
	s.revokeDuringStreamsAndWaits(api, other, s.newUser(api))
}

func (s *stack) revokeDuringStreamsAndWaits(api, other *proc, u *user) {
	far, awaited := u.submit(api, farAway), u.submit(api, farAway)
	thief := *u
	var streams []*eventStream
	reads, submissions := make(chan answer, 2), make(chan answer, 2)
	for _, p := range []*proc{api, other} {
		for path, first := range map[string]string{"/v1/events": "position", "/v1/jobs/" + far + "/events": "job-created"} {
			stream := thief.stream(p, path, "")
			stream.until(first)
			streams = append(streams, stream)
		}
		go func() { reads <- thief.call(p, "GET", "/v1/jobs/"+awaited, "", "Prefer", "wait=30") }()
		go func() { submissions <- thief.call(p, "POST", "/v1/jobs", farAway, "Prefer", "wait=30") }()
	}
	s.awaitCount("the thief's submissions wait", 4, `SELECT count(*) FROM jobs WHERE client_id = $1`, u.id)
	u.rotateKey(other)
	later := u.submit(api, farAway)
	u.expect(other, http.StatusOK, "POST", "/v1/jobs/"+far+"/cancel", "")
	for _, stream := range streams {
		for _, f := range stream.rest() {
			require.NotContains(s.t, f.data, later)
			require.NotEqual(s.t, "job-canceled", f.event, "%s: %+v", stream.path, f)
		}
	}
	for range 2 {
		(<-reads).requireProblem(s.t, http.StatusForbidden, "RFA_AUTH_API_KEY_DISABLED")
		accepted := <-submissions
		require.Equal(s.t, http.StatusAccepted, accepted.status, accepted.body)
	}
}

func (s *stack) revokeDuringRequests(api, other *proc, u *user) {
	thief := *u
	begun := map[string]pending{}
	for path, body := range map[string]string{
		"/v1/clients/" + u.id + "/keys": `{"rotate":true}`,
		"/v1/jobs":                      execute("SUCCESS_FAST"),
		"/v1/jobs/batch":                `{"jobs":[` + execute("SUCCESS_FAST") + `]}`,
		"/v1/webhooks":                  `{"url":"https://example.com/hook","events":["*"]}`,
		"/v1/schedules":                 `{"interval":"1h","job":` + execute("SUCCESS_FAST") + `}`,
	} {
		begun[path] = thief.begin(api, path, body)
	}
	u.rotateKey(other)
	for path, p := range begun {
		require.Equal(s.t, http.StatusForbidden, p.finish(s.t), path)
	}
	require.Equal(s.t, 1, s.count(`SELECT count(*) FROM api_keys WHERE client_id = $1 AND revoked_at IS NULL`, u.id))
	for _, table := range []string{"jobs", "batches", "webhooks", "schedules"} {
		require.Zero(s.t, s.count(`SELECT count(*) FROM `+table), table)
	}
}
