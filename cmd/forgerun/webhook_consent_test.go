package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// challenged is the environment in which receivers are asked.
var challenged = env{"FORGERUN_WEBHOOK_CHALLENGE": "true", "FORGERUN_PUBLIC_URL": "http://forgerun.test"}

// register asks for a webhook at a URL.
func (u *user) register(api *proc, url string, headers ...string) answer {
	return u.call(api, "POST", "/v1/webhooks", `{"url":"`+url+`","events":["job.succeeded"]}`, headers...)
}

// requireRefused wants a refusal because of the one member, for the reason.
func requireRefused(t *testing.T, a answer, pointer, why string) {
	t.Helper()
	require.NoError(t, a.err)
	require.Equal(t, http.StatusBadRequest, a.status, a.body)
	require.Equal(t, "RFA_JOB_VALIDATION_FAILED", a.text("code"), a.body)
	found := a.value("violations").([]any)
	require.Len(t, found, 1, a.body)
	require.Equal(t, pointer, found[0].(map[string]any)["pointer"], a.body)
	require.Contains(t, found[0].(map[string]any)["detail"], why)
}

// Where FORGERUN_WEBHOOK_CHALLENGE is on, nobody gets events who did not say that
// it wants them, at a webhook or a callback.
func TestWebhooksProveThatTheyWantEvents(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks, challenged)
	api, _, u := s.startDelivering()
	willing, other := newReceiver(t, nil), newReceiver(t, nil)

	other.agreeing(answeringAsked(http.StatusNoContent))
	requireRefused(t, u.register(api, other.url), "/url", "has no WebHook-Allowed-Origin")
	other.agreeing(allow("other.example"))
	requireRefused(t, u.register(api, other.url, "Idempotency-Key", "refused"), "/url", "allows other origins")
	other.agreeing(answeringAsked(http.StatusMethodNotAllowed))
	requireRefused(t, u.register(api, other.url), "/url", "with status 405")
	other.agreeing(http.RedirectHandler(willing.url, http.StatusTemporaryRedirect).ServeHTTP)
	requireRefused(t, u.register(api, other.url), "/url", "with status 307")
	require.Empty(t, willing.questions(), "no redirect is followed")
	require.Zero(t, s.count(`SELECT count(*) FROM webhooks`))
	requireRefused(t, u.trySubmit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`/done"`)), "/callback", "Register a webhook")

	for range 2 {
		a := u.register(api, willing.url+"/in", "Idempotency-Key", "taken")
		require.Equal(t, http.StatusCreated, a.status, a.body)
		require.NotNil(t, a.value("proven_at"), a.body)
		if secret := a.value("secret"); secret != nil {
			s.secret(secret.(string))
		}
	}
	require.Equal(t, []string{"forgerun.test"}, willing.questions(), "for a key that is known nobody is asked again")
	id := u.submit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`/done"`))
	batch := u.call(api, "POST", "/v1/jobs/batch", `{"jobs":[`+execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`"`)+`,`+
		execute("WEBHOOK_SUCCESS", `"callback":"`+other.url+`"`)+`]}`)
	require.Equal(t, http.StatusAccepted, batch.status, batch.body)
	require.Contains(t, batch.body, `"/jobs/1/callback"`)
	stranger := s.newUser(api).trySubmit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+willing.url+`"`))
	requireRefused(t, stranger, "/callback", "Register a webhook")
	s.await("SUCCEEDED", id)
	s.awaitDeliveries()
	require.Len(t, willing.of(id), len(life)+1, "the callback's and the webhook's")
	for _, d := range willing.all() {
		require.Equal(t, "forgerun.test", d.header.Get("WebHook-Request-Origin"))
	}
	require.Empty(t, other.all())
	s.checkInvariants()
}

// answeringAsked is a receiver that does not know of such questions.
func answeringAsked(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// Webhooks of the time before go on, but prove nothing; another URL must be
// proven like a first one.
func TestWebhooksOfBeforeTheChallenge(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	before := s.startAPI()
	u := s.newUser(before)
	old, willing, other := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	other.agreeing(answeringAsked(http.StatusNoContent))
	hook := "/v1/webhooks/" + u.subscribe(before, old.url, "job.succeeded").id
	require.Empty(t, old.questions())
	before.terminate()
	require.Zero(t, before.exitCode())

	api := s.startLeader(challenged)
	s.startWorker()
	s.startWebhooks(challenged)
	require.Nil(t, u.call(api, "GET", hook, "").value("proven_at"))
	requireRefused(t, u.trySubmit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+old.url+`"`)), "/callback", "Register a webhook")
	id := u.submit(api, execute("WEBHOOK_SUCCESS"))
	old.await("the end", func(d received) bool { return d.job() == id })

	requireRefused(t, u.call(api, "PATCH", hook, `{"url":"`+other.url+`"}`), "/url", "has no WebHook-Allowed-Origin")
	require.Equal(t, old.url, u.call(api, "GET", hook, "").text("url"))
	a := u.call(api, "PATCH", hook, `{"url":"`+old.url+`"}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.NotNil(t, a.value("proven_at"), a.body)
	called := u.submit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+old.url+`/done"`))
	a = u.call(api, "PATCH", hook, `{"url":"`+willing.url+`"}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	requireRefused(t, u.trySubmit(api, execute("WEBHOOK_SUCCESS", `"callback":"`+old.url+`"`)), "/callback", "Register a webhook")
	s.await("SUCCEEDED", called)
	s.awaitDeliveries()
	require.Subset(t, eventNames(old.of(called)), life, "what was accepted is delivered")
	s.checkInvariants()
}

// A receiver that hangs, or answers without end, is refused in bounded time, and
// nobody else waits for it.
func TestReceiversThatDoNotAnswerTheChallenge(t *testing.T) {
	t.Parallel()
	s := newStack(t, challenged)
	api := s.startAPI()
	u, neighbour := s.newUser(api), s.newUser(api)
	willing := newReceiver(t, nil)
	var asking sync.WaitGroup
	for name, play := range map[string]func(net.Conn){
		"hangs": func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"endless head": func(conn net.Conn) {
			_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: *\r\n")
			for err == nil {
				_, err = io.WriteString(conn, "A: "+strings.Repeat("x", 4096)+"\r\n")
			}
		},
	} {
		url, played := newPlayer(t, play)
		asking.Go(func() {
			began := time.Now()
			requireRefusedLater(t, u.register(api, url), name)
			if took := time.Since(began); took > 5*time.Second+patience/10 {
				t.Errorf("%s: it took %v", name, took)
			}
		})
		select {
		case <-played:
		case <-time.After(patience):
			require.Fail(t, "nobody asked the receiver")
		}
	}
	for range 3 {
		a := neighbour.register(api, willing.url)
		require.Equal(t, http.StatusCreated, a.status, a.body)
		s.secret(a.text("secret"))
	}
	url, _ := newPlayer(t, func(conn net.Conn) {
		_, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nWebHook-Allowed-Origin: *\r\n\r\n")
		for err == nil {
			_, err = io.WriteString(conn, strings.Repeat("x", 4096))
		}
	})
	a := u.register(api, url)
	require.Equal(t, http.StatusCreated, a.status, "of an endless body nothing is read: %s", a.body)
	s.secret(a.text("secret"))
	asking.Wait()
	require.Equal(t, 4, s.count(`SELECT count(*) FROM webhooks WHERE proven_at IS NOT NULL`))
	s.checkInvariants()
}

// requireRefusedLater is requireRefused for another goroutine than the test's.
func requireRefusedLater(t *testing.T, a answer, what string) {
	if a.err != nil || a.status != http.StatusBadRequest || !strings.Contains(a.body, "no valid HTTP answer within 5s") {
		t.Errorf("%s: %v %d %s", what, a.err, a.status, a.body)
	}
}

// newPlayer starts a receiver that plays with each connection after it got a
// request, and closes played when the first one came.
func newPlayer(t *testing.T, play func(net.Conn)) (url string, played chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	played = make(chan struct{})
	once := sync.OnceFunc(func() { close(played) })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					once()
					play(conn)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/", played
}
