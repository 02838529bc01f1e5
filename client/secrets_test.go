package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
)

func TestKeysAndSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := serveWith(t, client.Config{Logger: logger}, reply{cut: true}, problem(503, "X"), anything)
	require.NoError(t, second(s.c.Submit(t.Context(), client.JobRequest{})))
	require.NotEmpty(t, log.String())
	const secret = "frk_id_secret"
	for _, value := range []any{
		s.c, client.Config{Key: secret}, &client.Config{Key: secret}, client.Webhook{Secret: secret}, &client.Webhook{Secret: secret},
		client.Key{APIKey: secret}, &client.Key{APIKey: secret}, client.Verifier{Secret: secret}, &client.Verifier{Secret: secret},
		[]client.Webhook{{Secret: secret}},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
			require.NotContains(t, fmt.Sprintf(verb, value), secret, "%T %s", value, verb)
		}
		logger.Info("value", "value", value)
	}
	require.NotContains(t, log.String(), secret)
}

type program struct {
	c client.Client
	p *client.Client
}

func TestKeysAreNotShownByOtherWays(t *testing.T) {
	t.Parallel()
	const secret = "frk_id_secret"
	c := must(client.New(client.Config{URL: "http://x", Key: secret}))(t)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		for _, value := range []any{*c, program{*c, c}, &program{*c, c}, client.Config{URL: "https://user:" + secret + "@h"},
			client.Config{URL: secret + "://[::1"}} {
			text := fmt.Sprintf(verb, value)
			require.NotContains(t, text, secret, "%T %s", value, verb)
			require.NotContains(t, text, fmt.Sprintf("%x", secret), "%T %s", value, verb)
		}
	}
	s := serve(t, ok(`{"api_key":"`+secret+`","secret":"`+secret+`","created_at":"yesterday"}`))
	_, keyErr := s.c.CreateKey(t.Context(), "c", false)
	_, hookErr := s.c.RotateSecret(t.Context(), "w")
	for _, err := range []error{keyErr, hookErr} {
		var unexpected *client.UnexpectedError
		require.True(t, errors.As(err, &unexpected))
		require.Empty(t, unexpected.Body)
		require.NotContains(t, fmt.Sprintf("%+v", unexpected), secret)
	}
}
