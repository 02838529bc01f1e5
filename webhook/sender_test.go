package webhook

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	got   []captured
	conns atomic.Int32
}

func newReceiver(t testing.TB, start func(*httptest.Server), answer http.HandlerFunc) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		c := captured{"http", q.Method, q.Host, q.RequestURI, q.Header, body}
		if q.TLS != nil {
			c.scheme = "https"
		}
		r.mu.Lock()
		r.got = append(r.got, c)
		r.mu.Unlock()
		if answer != nil {
			answer(w, q)
		}
	}))
	r.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			r.conns.Add(1)
		}
	}
	start(r.Server)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) all() []captured {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got
}

func publicKey(t *testing.T, s *Sender) ed25519.PublicKey {
	t.Helper()
	key := must(s.keys.current(time.Now()))(t)
	return key.Public
}

var covered = []string{"@method", "@target-uri", "content-type", "content-digest", "webhook-id"}

func TestDelivery(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, (*httptest.Server).Start, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Receiver", "yes")
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, "thanks")
	})
	s := localSender(t)
	p := sampleParcel(t)
	second, sealed, err := s.keys.vault.NewSecret(webhookID)
	require.NoError(t, err)
	p.Target.Secrets = append(p.Target.Secrets, job.SealedSecret{Sealed: sealed, Until: new(time.Now().Add(time.Hour))},
		job.SealedSecret{Sealed: []byte("ended"), Until: new(time.Now().Add(-time.Second))})
	p.Target.URL = r.URL + "/hook?a=1"
	for range 2 {
		before := time.Now()
		sent := s.Send(t.Context(), p)
		a := sent.Attempt
		require.Empty(t, a.Error)
		require.Equal(t, 202, a.Status)
		require.Equal(t, "thanks", string(a.Body))
		require.False(t, a.Truncated)
		require.Equal(t, []string{"yes"}, a.Header["X-Receiver"])
		require.False(t, a.StartedAt.Before(before.Add(-time.Second)))
		require.Equal(t, time.UTC, a.StartedAt.Location())
		require.Positive(t, a.Duration)
		require.Zero(t, sent.RetryAfter)
	}
	got := r.all()
	require.Len(t, got, 2)
	require.Equal(t, got[0].body, got[1].body, "the same bytes on each try")
	for _, c := range got {
		require.Equal(t, http.MethodPost, c.method)
		for name, want := range map[string]string{
			"Content-Type": mimeProblem, "User-Agent": "ForgeRun/1.2.3", "Webhook-Id": deliveryID.String(),
			"Ce-Id": eventID.String(), "Ce-Type": "job.failed", "Ce-Sequence": "4",
			"Ce-Workkind": "FAIL_AFTER_RETRYABLE", "Content-Language": "en", "Content-Length": strconv.Itoa(len(c.body)),
		} {
			require.Equal(t, want, c.header.Get(name), name)
		}
		for _, name := range []string{"Idempotency-Key", "Accept-Encoding", "Authorization", "Cookie"} {
			require.NotContains(t, c.header, name)
		}
		names := must(c.verify(publicKey(t, s), time.Now()))(t)
		require.Equal(t, append(covered, "ce-specversion", "ce-id", "ce-type", "ce-source", "ce-subject", "ce-time", "ce-sequence",
			"ce-sequencetype", "ce-workkind"), names)

		first := must(s.keys.vault.Secret(webhookID, p.Target.Secrets[0].Sealed))(t)
		require.Len(t, strings.Fields(c.header.Get("Webhook-Signature")), 2, "the third secret has expired")
		for _, secret := range []string{first, second} {
			require.NoError(t, verifyStandard(secret, c.body, c.header))
		}
	}
}

// After a change of the master key, old secrets cannot be decrypted any more.
func TestUnreadableOldSecretIsLeftOut(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	s := localSender(t)
	p := sampleParcel(t)
	p.Target.URL = r.URL
	_, sealed, err := s.keys.vault.NewSecret(webhookID)
	require.NoError(t, err)
	until := time.Now().Add(time.Hour)
	unreadable := []byte("sealed under another key")
	p.Target.Secrets = []job.SealedSecret{{Sealed: sealed}, {Sealed: unreadable, Until: &until}}
	require.Empty(t, s.Send(t.Context(), p).Attempt.Error)
	require.Len(t, strings.Fields(r.all()[0].header.Get("Webhook-Signature")), 1)
	p.Target.Secrets = []job.SealedSecret{{Sealed: unreadable}}
	require.Equal(t, job.SendInternal, s.Send(t.Context(), p).Attempt.Error)
	require.Len(t, r.all(), 1, "nothing is sent without its signature")
}

func TestStructuredDelivery(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	s := localSender(t)
	p := sampleParcel(t)
	p.Target.URL, p.Target.ContentMode = r.URL, job.ContentStructured
	require.Empty(t, s.Send(t.Context(), p).Attempt.Error)
	c := r.all()[0]
	names := must(c.verify(publicKey(t, s), time.Now()))(t)
	require.Equal(t, covered, names)
	require.Equal(t, "application/cloudevents+json", c.header.Get("Content-Type"))
	require.NotContains(t, c.header, "Ce-Id")
	var envelope struct {
		ID   string
		Data job.Document
	}
	require.NoError(t, json.Unmarshal(c.body, &envelope))
	require.Equal(t, eventID.String(), envelope.ID)
	require.EqualValues(t, "FAILED", envelope.Data.JobStatus)
}

func TestSignedTargetIsTheOneReceived(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	s := localSender(t)
	s.dialer.Resolver = resolver(func(string) []netip.Addr { return loopback })
	_, port, err := net.SplitHostPort(r.Listener.Addr().String())
	require.NoError(t, err)
	for i, rest := range []string{
		"", "/", "?a=b", "/?", "/a%2Fb", "/a//b", "//a", "/ä?ü=ö%20x&y=1", "/%e4", "/a;b=c,d", "/!$&'()*+,;=:@", "/..//./x", "/%7Etilde~",
		`/"quoted"?"q"=<>|^`, "/a?b?c=/d", "/{a}[b]?t={a}&u[]=`1`", "/a?b=100%&c=%4",
	} {
		require.Empty(t, sendTo(t, s, "http://Receiver.Example:"+port+rest).Attempt.Error, rest)
		c := r.all()[i]
		_, err := c.verify(publicKey(t, s), time.Now())
		require.NoError(t, err, "%s: %s", rest, c.target)
		require.Equal(t, "receiver.example:"+port, c.host)
		require.Regexp(t, "^([A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})+$", c.target, "RFC 3986")
	}
}

func TestStatusesAreClassified(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, (*httptest.Server).Start, func(w http.ResponseWriter, q *http.Request) {
		status, _ := strconv.Atoi(q.URL.Path[1:])
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
	})
	s := localSender(t)
	for status, want := range map[int]job.SendError{
		200: "", 201: "", 202: "", 204: "", 206: "", 226: "", 299: "", 300: job.SendRedirect, 304: job.SendRedirect, 308: job.SendRedirect,
		400: job.SendClientError, 401: job.SendClientError, 404: job.SendClientError, 410: job.SendGone, 429: job.SendRateLimited,
		499: job.SendClientError,
		500: job.SendServerError, 503: job.SendServerError, 599: job.SendServerError, 600: job.SendBadAnswer, 999: job.SendBadAnswer,
	} {
		sent := sendTo(t, s, r.URL+"/"+strconv.Itoa(status))
		require.Equal(t, want, sent.Attempt.Error, status)
		require.Equal(t, status, sent.Attempt.Status)
		require.Equal(t, 7*time.Second, sent.RetryAfter)
	}
}

func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bytes int
		conns int32
	}{
		"all of the body is stored":              {job.MaxStoredBody, 1},
		"the rest is just small enough to drain": {maxDrained - 1, 1},
		"too long to drain":                      {4 << 20, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, (*httptest.Server).Start, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(bytes.Repeat([]byte("x"), test.bytes))
			})
			s := localSender(t)
			for range 10 {
				a := sendTo(t, s, r.URL).Attempt
				require.Empty(t, a.Error)
				require.Len(t, a.Body, min(test.bytes, job.MaxStoredBody))
				require.Equal(t, test.bytes > job.MaxStoredBody, a.Truncated)
			}
			require.Equal(t, test.conns, r.conns.Load())
		})
	}
}

// Details of internal errors are only in the log.
func TestInternalErrors(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, (*httptest.Server).Start, nil)
	for name, test := range map[string]struct {
		change func(s *Sender, p *job.ClaimedDelivery)
		logged string
	}{
		"no attempt":               {func(_ *Sender, p *job.ClaimedDelivery) { p.Occurrence.Ended = nil }, "without the attempt"},
		"another webhook's secret": {func(_ *Sender, p *job.ClaimedDelivery) { p.WebhookID = job.ID{9} }, "FORGERUN_MASTER_KEY"},
		"no signing key": {
			func(s *Sender, _ *job.ClaimedDelivery) { s.keys = NewKeyring(s.keys.vault, &memoryStore{}) }, "no signing key",
		},
		"panic":          {func(s *Sender, _ *job.ClaimedDelivery) { s.keys = nil }, "panic"},
		"invalid header": {func(s *Sender, _ *job.ClaimedDelivery) { s.links.PublicURL = "https://a\nb" }, ""},
	} {
		var log bytes.Buffer
		s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: 10 * time.Second, Log: slog.New(slog.NewTextHandler(&log, nil))})
		p := sampleParcel(t)
		p.Target.URL = r.URL
		test.change(s, &p)
		a := s.Send(t.Context(), p).Attempt
		if test.logged == "" {
			require.NotEmpty(t, a.Error, name)
			continue
		}
		require.Equal(t, job.SendInternal, a.Error, name)
		require.Contains(t, log.String(), test.logged, name)
		require.Contains(t, log.String(), deliveryID.String(), name)
		require.NotContains(t, log.String(), "whsec_", name)
		require.False(t, a.StartedAt.IsZero())
	}
	require.Empty(t, r.all())
}
