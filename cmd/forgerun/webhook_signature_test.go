package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func (u *user) directory(api *proc) (text []byte, kids []string) {
	u.s.t.Helper()
	a := (&user{s: u.s}).call(api, "GET", "/.well-known/http-message-signatures-directory", "")
	require.Equal(u.s.t, http.StatusOK, a.status, a.body)
	var set struct{ Keys []struct{ KID string } }
	require.NoError(u.s.t, json.Unmarshal([]byte(a.body), &set))
	for _, k := range set.Keys {
		kids = append(kids, k.KID)
	}
	return []byte(a.body), kids
}

// The signing key is rotated: both keys are published, what is sent is signed
// by the one that already signs, and after the secret was rotated a delivery
// carries the signatures of both secrets.
func TestRotation(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	r := newReceiver(t, nil)
	hook := u.subscribe(api, r.url, "job.succeeded")
	_, kids := u.directory(api)
	require.Len(t, kids, 1)
	rotate := s.start("rotate-signing-key")
	require.Zero(t, rotate.exitCode(), rotate.log.String())
	eventually(t, "two keys are published", func() bool { _, kids = u.directory(api); return len(kids) == 2 })

	secrets := []string{hook.secret}
	for range 2 { // as if the first answer had been lost
		a := u.call(api, "POST", "/v1/webhooks/"+hook.id+"/rotate-secret", "")
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.NotContains(t, secrets, a.text("secret"))
		secrets = append(secrets, a.text("secret"))
	}
	s.secret(secrets...)
	id := u.submit(api, execute("WEBHOOK_SUCCESS"))
	got := r.await("the end", func(d received) bool { return d.job() == id })
	require.Len(t, strings.Fields(got.header.Get("Webhook-Signature")), 3)
	require.Contains(t, got.header.Get("Signature-Input"), `keyid="`+kids[0]+`"`, "the new key is published before it signs")
	directory, _ := u.directory(api)
	verifier := goVerifier(t)
	for _, secret := range secrets {
		require.NoError(t, verifier.verify(t, got.captured(), secret, directory))
	}
	s.exec(`UPDATE signing_keys SET signs_from = now()`)
	s.startWebhooks() // reads the keys anew
	s.awaitDeliveries()
	s.checkInvariants()
}

// After a leak one key is left, a new one, and it signs what is sent from then on.
func TestLeakedSigningKey(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	_, leaked := u.directory(api)
	require.Zero(t, s.start("rotate-signing-key").exitCode(), "one that is published and does not sign yet ends too")
	replace := startProc(t, s.env, s.knownSecrets, "rotate-signing-key", "--leaked")
	require.Zero(t, replace.exitCode(), replace.log.String())
	require.Equal(t, 1, s.count(`SELECT count(*) FROM signing_keys WHERE retires_at IS NULL AND signs_from <= clock_timestamp()`))
	require.Equal(t, 2, s.count(`SELECT count(*) FROM signing_keys WHERE retires_at <= clock_timestamp()`))

	var kids []string
	eventually(t, "the new key alone is published", func() bool {
		_, kids = u.directory(api)
		return len(kids) == 1 && kids[0] != leaked[0]
	})
	r := newReceiver(t, nil)
	u.subscribe(api, r.url, "job.succeeded")
	s.startWebhooks() // reads the keys anew; the one that runs does within 30 s
	eventually(t, "the new key signs", func() bool {
		id := u.submit(api, execute("WEBHOOK_SUCCESS"))
		got := r.await("the end", func(d received) bool { return d.job() == id })
		return strings.Contains(got.header.Get("Signature-Input"), `keyid="`+kids[0]+`"`)
	})
}

// The keys of another master key cannot be used, and the process says so.
func TestWrongMasterKey(t *testing.T) {
	t.Parallel()
	s := newStack(t)
	s.startWebhooks()
	for _, role := range []string{"webhooks", "api"} {
		p := s.start(role, env{"FORGERUN_MASTER_KEY": strings.Repeat("A", 43) + "="})
		require.Equal(t, 1, p.exitCode(), role)
		require.Contains(t, p.log.String(), "FORGERUN_MASTER_KEY")
	}
}

// Whoever verifies with another implementation, in another language, accepts
// every delivery and none that was tampered with.
func TestForeignVerifiersAcceptEveryDelivery(t *testing.T) {
	t.Parallel()
	s := newStack(t, hooks)
	api, _, u := s.startDelivering()
	r := newReceiver(t, nil)
	hook := u.subscribe(api, r.url+"/path?q=ü%20x&y=1")
	a := u.call(api, "PATCH", "/v1/webhooks/"+hook.id, `{"description":"ü"}`)
	require.Equal(t, http.StatusOK, a.status, a.body)
	structured := newReceiver(t, nil)
	a = u.call(api, "POST", "/v1/webhooks", `{"url":"`+structured.url+`","events":["*"],"content_mode":"structured"}`)
	require.Equal(t, http.StatusCreated, a.status, a.body)
	s.secret(a.text("secret"))
	other := subscription{a.text("webhook_id"), a.text("secret")}
	s.await("FAILED", u.submit(api, execute("FAIL_IMMEDIATE")))
	require.Equal(t, http.StatusAccepted, u.call(api, "POST", "/v1/webhooks/"+hook.id+"/test", "").status)
	s.awaitDeliveries()
	directory, _ := u.directory(api)
	for _, v := range verifiers(t) {
		t.Run(v.name, func(t *testing.T) {
			v.require(t)
			for _, d := range r.all() {
				require.NoError(t, v.verify(t, d.captured(), hook.secret, directory))
			}
			for _, d := range structured.all() {
				require.NoError(t, v.verify(t, d.captured(), other.secret, directory))
			}
			require.Error(t, v.verify(t, structured.all()[0].captured(), hook.secret, directory), "the secret of another webhook")
			tampered := r.all()[0].captured()
			tampered.Body = append(tampered.Body, ' ')
			require.Error(t, v.verify(t, tampered, hook.secret, directory))
		})
	}
	for _, d := range structured.all() {
		require.Equal(t, "application/cloudevents+json", d.header.Get("Content-Type"))
		require.Equal(t, "1.0", d.value("specversion"))
		require.NotNil(t, d.value("data"))
	}
	s.checkInvariants()
}
