package client_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

type delivery struct {
	method, url string
	header      http.Header
	body        []byte
}

type captured struct {
	keys             map[string]ed25519.PublicKey
	secret           string
	failed           delivery
	directoryAnswers reply
}

func capture(t *testing.T) captured {
	t.Helper()
	var file struct {
		Secret     string
		Directory  json.RawMessage
		Deliveries map[string]struct {
			Method, URL string
			Headers     map[string]string
			Body        []byte `json:"body_base64"`
		}
	}
	require.NoError(t, json.Unmarshal(must(os.ReadFile("testdata/deliveries.json"))(t), &file))
	d, header := file.Deliveries["job.failed"], http.Header{}
	for name, value := range d.Headers {
		header.Set(name, value)
	}
	answers := reply{status: 200, kind: "application/http-message-signatures-directory+json", body: string(file.Directory)}
	keys := must(serve(t, answers).c.SigningKeys(t.Context()))(t)
	return captured{keys, file.Secret, delivery{d.Method, d.URL, header, d.Body}, answers}
}

func (d delivery) request() *http.Request {
	return &http.Request{Method: d.method, Header: d.header, Body: io.NopCloser(bytes.NewReader(d.body))}
}

func keysOf(keys map[string]ed25519.PublicKey) func(string) (ed25519.PublicKey, error) {
	return func(id string) (ed25519.PublicKey, error) {
		if key, known := keys[id]; known {
			return key, nil
		}
		return nil, fmt.Errorf("%w: its key is not published", client.ErrSignature)
	}
}

func signedAt(t *testing.T, d delivery) time.Time {
	t.Helper()
	var seconds int64
	require.NoError(t, second(fmt.Sscan(d.header.Get("Webhook-Timestamp"), &seconds)))
	return time.Unix(seconds, 0)
}

func (d delivery) changed(change func(d *delivery)) delivery {
	d.header = d.header.Clone()
	d.body = bytes.Clone(d.body)
	change(&d)
	return d
}

func (d delivery) with(name, value string) delivery {
	return d.changed(func(d *delivery) {
		if more, adds := strings.CutPrefix(value, "+"); adds {
			d.header.Add(name, more)
		} else if d.header.Set(name, value); value == "-" {
			d.header.Del(name)
		}
	})
}

func TestParseDelivery(t *testing.T) {
	t.Parallel()
	const structured = "application/cloudevents+json"
	for body, kind := range map[string]string{`{}`: jsonType, `{`: structured, `{"type":"job.failed","data":{}}`: structured} {
		header := http.Header{"Content-Type": {kind}, "Ce-Type": {"t"}}
		require.Error(t, second(client.ParseDelivery(header, []byte(body))), body)
	}
	binary := http.Header{"Ce-Id": {"e"}, "Ce-Type": {"t"}, "Ce-Sequence": {"-4"}, "Content-Type": {jsonType}}
	m := must(client.ParseDelivery(binary, []byte(`{}`)))(t)
	require.Zero(t, m.Sequence)
	require.Equal(t, m.ReceivedAt, must(m.Outcome())(t).ReceivedAt)
	require.Error(t, second(client.ParseDelivery(binary, []byte(`{`))))
}

func TestDirectory(t *testing.T) {
	t.Parallel()
	const kid = "aqYyLROvIDeE4Mm1pVMlRumgyGRsHzVXijOk8Hqtjws"
	c := capture(t)
	s := serveWith(t, client.Config{MaxTries: 1}, reply{status: 500}, c.directoryAnswers)
	d := s.c.Directory()
	asked := func(n int, why string) {
		t.Helper()
		require.Len(t, s.requests(), n, why)
	}
	_, err := d.Key(kid)
	require.Error(t, err)
	require.False(t, errors.Is(err, client.ErrSignature))
	require.Error(t, second(d.Key(kid)))
	asked(1, "no read right after an error")
	s.clock.pass(5 * time.Second)
	key := must(d.Key(kid))(t)
	require.Equal(t, c.keys[kid], key)
	require.NoError(t, second(d.Key(kid)))
	asked(2, "the keys are cached")
	require.ErrorIs(t, second(d.Key("unknown")), client.ErrSignature)
	asked(2, "at most once a minute")
	s.clock.pass(time.Minute)
	for range 3 {
		require.ErrorIs(t, second(d.Key("unknown")), client.ErrSignature)
	}
	asked(3, "an unknown key causes one more read")
	s.clock.pass(5 * time.Minute)
	s.mu.Lock()
	s.replies = []reply{{status: 500}}
	s.mu.Unlock()
	require.NoError(t, second(d.Key(kid)), "old keys are used while the service is unavailable")
	asked(4, "the keys are read again after five minutes")
	_, err = d.Key("unknown")
	require.Error(t, err)
	require.False(t, errors.Is(err, client.ErrSignature), "the key may be a new one")
	s.clock.pass(time.Hour)
	require.Error(t, second(d.Key(kid)), "old keys are used for an hour at most")
}

func TestKeysAndSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	const secret = "frk_id_secret"
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := serveWith(t, client.Config{Logger: logger}, reply{cut: true}, problem(503, "X"), anything)
	require.NoError(t, second(s.c.Submit(t.Context(), client.JobRequest{})))
	require.NotEmpty(t, log.String())
	// Use a client without open connections: printing connections in use would be a data race.
	s = serveWith(t, client.Config{Logger: logger}, anything)
	type program struct {
		c client.Client
		p *client.Client
	}
	for _, value := range []any{
		s.c, client.Config{Key: secret}, &client.Config{Key: secret}, client.Webhook{Secret: secret}, &client.Webhook{Secret: secret},
		client.Key{APIKey: secret}, &client.Key{APIKey: secret}, client.Verifier{Secret: secret}, &client.Verifier{Secret: secret},
		[]client.Webhook{{Secret: secret}}, *s.c, program{*s.c, s.c}, &program{*s.c, s.c},
		client.Config{URL: "https://user:" + secret + "@h"}, client.Config{URL: secret + "://[::1"},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			text := fmt.Sprintf(verb, value)
			require.NotContains(t, text, secret, "%T %s", value, verb)
			require.NotContains(t, text, fmt.Sprintf("%x", secret), "%T %s", value, verb)
		}
		logger.Info("value", "value", value)
	}
	require.NotContains(t, log.String(), secret)

	s = serve(t, ok(`{"api_key":"`+secret+`","secret":"`+secret+`","created_at":"yesterday"}`))
	for _, err := range []error{second(s.c.CreateKey(t.Context(), "c", false)), second(s.c.RotateSecret(t.Context(), "w"))} {
		var unexpected *client.UnexpectedError
		require.ErrorAs(t, err, &unexpected)
		require.Empty(t, unexpected.Body)
		require.NotContains(t, fmt.Sprintf("%+v", unexpected), secret)
	}
}
