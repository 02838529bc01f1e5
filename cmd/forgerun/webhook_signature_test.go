package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func (u *user) directory(api *proc) (text []byte, kids []string) {
	u.s.t.Helper()
	a := (&user{s: u.s}).expect(api, http.StatusOK, "GET", "/.well-known/http-message-signatures-directory", "")
	set := parsed[struct{ Keys []struct{ KID string } }](u.s.t, a.body)
	for _, k := range set.Keys {
		kids = append(kids, k.KID)
	}
	return []byte(a.body), kids
}

// rotate-signing-key --leaked revokes all existing keys. Only the new key is valid, and it signs at once.
func TestLeakedSigningKey(t *testing.T) {
	s, api, u := newDelivering(t)
	_, leaked := u.directory(api)
	require.Zero(t, s.start("rotate-signing-key").exitCode(), "a key that does not sign yet is revoked too")
	replace := startProc(t, s.env, s.knownSecrets, "rotate-signing-key", "--leaked")
	require.Zero(t, replace.exitCode(), replace.log.String())
	require.Equal(t, 1, s.count(`SELECT count(*) FROM signing_keys WHERE retires_at IS NULL AND signs_from <= clock_timestamp()`))
	require.Equal(t, 2, s.count(`SELECT count(*) FROM signing_keys WHERE retires_at <= clock_timestamp()`))

	var kids []string
	eventually(t, "the new key alone is published", func() bool {
		_, kids = u.directory(api)
		return len(kids) == 1 && kids[0] != leaked[0]
	})
	r := u.receive(api, nil, "job.succeeded")
	s.startDeliverer() // a new deliverer reads the keys at once, a running one within 30 s
	eventually(t, "the new key signs", func() bool {
		id := u.submit(api, execute("WEBHOOK_SUCCESS"))
		got := r.await("the end", func(d received) bool { return d.job() == id })
		return strings.Contains(got.header.Get("Signature-Input"), `keyid="`+kids[0]+`"`)
	})
}

func TestWrongMasterKey(t *testing.T) {
	s := newStack(t)
	s.startDeliverer()
	for _, role := range []string{"deliverer", "api"} {
		p := s.start(role, env{"FORGERUN_MASTER_KEY": strings.Repeat("A", 43) + "="})
		require.Equal(t, 1, p.exitCode(), role)
		require.Contains(t, p.log.String(), "FORGERUN_MASTER_KEY")
	}
}

// Promise: draft 5.3, 6.6, D
func TestForeignVerifiersAcceptEveryDelivery(t *testing.T) {
	s, api, u := newDelivering(t)
	verifiers := verifiers(t) // build them before the deliveries, which are valid for only five minutes
	r := newReceiver(t, nil)
	hook := u.subscribe(api, r.url+"/path?q=ü%20x&y=1")
	u.expect(api, http.StatusOK, "PATCH", "/v1/webhooks/"+hook.id, `{"description":"ü"}`)
	structured := newReceiver(t, nil)
	a := u.expect(api, http.StatusCreated, "POST", "/v1/webhooks", `{"url":"`+structured.url+`","events":["*"],"content_mode":"structured"}`)
	s.secret(a.text("secret"))
	other := subscription{a.text("webhook_id"), a.text("secret")}
	s.await("FAILED", u.submit(api, execute("FAIL_IMMEDIATE")))
	require.Equal(t, http.StatusAccepted, u.call(api, "POST", "/v1/webhooks/"+hook.id+"/test", "").status)
	s.awaitDeliveries()
	directory, _ := u.directory(api)
	for _, v := range verifiers {
		t.Run(v.name, func(t *testing.T) {
			v.require(t)
			for _, d := range r.all() {
				require.NoError(t, v.verify(t, d.captured(), hook.secret, directory))
			}
			if !v.secretOnly {
				require.NoError(t, v.verify(t, r.all()[0].captured(), "", directory), "like a callback, which has no secret")
			}
			require.NoError(t, v.verify(t, structured.all()[0].captured(), other.secret, directory))
			v.requireRefusals(t, r.all()[0].captured(), hook.secret, directory)
		})
	}
	for _, d := range structured.all() {
		require.Equal(t, "application/cloudevents+json", d.header.Get("Content-Type"))
		require.Equal(t, "1.0", d.value("specversion"))
		require.NotNil(t, d.value("data"))
	}
	s.checkInvariants()
}

const snippets = "../../docs/examples/webhooks"

// captured is a delivery in the input format of the programs in docs/examples/webhooks.
type captured struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"` // registered URL
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body_base64"`
}

func capture(r *http.Request, url string, body []byte) captured {
	c := captured{Method: r.Method, URL: url, Headers: map[string]string{}, Body: body}
	for name, values := range r.Header {
		c.Headers[name] = strings.Join(values, ", ")
	}
	return c
}

type verifier struct {
	name    string
	missing string
	command []string // reads a delivery and verifies it
	// If secretOnly is true, the command knows only the secret. It reads the body from standard input, and the headers from environment
	// variables.
	secretOnly bool
}

// verifiers returns only the Go verifier. With -tags slow, it returns all verifiers. Run each verifier in a subtest, and first call its
// method `require`, which skips the subtest if a program is missing.
var verifiers = func(t *testing.T) []verifier { return []verifier{goVerifier(t)} }

func (v verifier) require(t *testing.T) {
	t.Helper()
	if v.missing != "" {
		t.Skip("deliveries are not verified with " + v.name + ": " + v.missing)
	}
}

// verify runs the verifier. The error says why the verifier refused the delivery. If `directory` is nil, the verifier gets only the
// secret. If `secret` is empty, the verifier gets only the keys. A verifier that crashes fails the test.
func (v verifier) verify(t *testing.T, c captured, secret string, directory []byte) error {
	t.Helper()
	input, err := json.Marshal(c)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, v.command[0], v.command[1:]...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	cmd.Env = append(os.Environ(), "WEBHOOK_SECRET="+secret, "DIRECTORY=")
	switch {
	case v.secretOnly && secret == "":
		return errors.New("set WEBHOOK_SECRET: it does not look at the key")
	case v.secretOnly:
		cmd.Stdin = bytes.NewReader(c.Body)
		for _, name := range []string{"Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"} {
			cmd.Env = append(cmd.Env, strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+c.Headers[name])
		}
	case directory != nil:
		file := filepath.Join(t.TempDir(), "directory.json")
		require.NoError(t, os.WriteFile(file, directory, 0o600))
		cmd.Env = append(cmd.Env, "DIRECTORY="+file)
	}
	err = cmd.Run()
	said := strings.TrimSpace(stdout.String())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 && said != "" && stderr.Len() == 0 {
		require.NotRegexp(t, "undefined|not a function|has no attribute|nil pointer", said, "%s crashed", v.name)
		return errors.New(said)
	}
	require.NoError(t, err, "%s crashed: %s%s", v.name, said, stderr.String())
	require.Equal(t, "ok", said, v.name)
	return nil
}

func goVerifier(t *testing.T) verifier {
	v := verifier{name: "Go", command: []string{filepath.Join(t.TempDir(), "verify")}}
	if _, err := exec.LookPath("go"); err != nil {
		v.missing = "go is not on PATH; install it from https://go.dev/dl"
		return v
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", v.command[0], ".")
	build.Dir, build.Env = filepath.Join(snippets, "go"), append(os.Environ(), "GOWORK=off")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	return v
}

func missingProgram(name, remedy string) string {
	if _, err := exec.LookPath(name); err != nil {
		return name + " is not on PATH; " + remedy
	}
	return ""
}

func TestWebhooksPageQuotesTheSnippets(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"webhooks.md", "api.md", "testbed.md"} {
		page := readText(t, "../../docs/reference/"+name)
		for _, quote := range regexp.MustCompile("(?s)<!-- from (\\S+) -->\n```[a-z]+\n(.*?)\n```").FindAllStringSubmatch(page, -1) {
			file := readText(t, filepath.Join("../../docs/reference", quote[1]))
			require.Contains(t, file, quote[2], "a quote from %s", quote[1])
		}
	}
	for _, name := range []string{"go/verify.go", "verify.mjs", "verify-plain.mjs", "verify.py"} {
		require.Contains(t, readText(t, "../../docs/reference/webhooks.md"), "](../examples/webhooks/"+name+")")
	}
}

// tampering is a change to a valid delivery. If `bySecret` is true, verifiers with the secret must detect the change. If `byKey` is true,
// verifiers with the keys must detect it.
type tampering struct {
	name            string
	of              func(*captured)
	bySecret, byKey bool
}

func header(name, value string) func(*captured) { return func(c *captured) { c.Headers[name] = value } }

func without(names ...string) func(*captured) {
	return func(c *captured) {
		for _, name := range names {
			delete(c.Headers, name)
		}
	}
}

func inInput(old, changed string) func(*captured) {
	return func(c *captured) {
		c.Headers["Signature-Input"] = strings.Replace(c.Headers["Signature-Input"], old, changed, 1)
	}
}

func zeros(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }

var tamperings = []tampering{
	{"body", func(c *captured) { c.Body = bytes.Replace(c.Body, []byte("}"), []byte(" }"), 1) }, true, true},
	{"body and digest", func(c *captured) {
		c.Body = []byte(`{}`)
		sum := sha256.Sum256(c.Body)
		c.Headers["Content-Digest"] = "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	}, true, true},
	{"digest", header("Content-Digest", "sha-256=:AAAA:"), false, true},
	{"no digest", without("Content-Digest"), false, true},
	{"method", func(c *captured) { c.Method = "PUT" }, false, true},
	{"target URI", func(c *captured) { c.URL += "z" }, false, true},
	{"content type", header("Content-Type", "text/plain"), false, true},
	{"webhook-id", header("Webhook-Id", "01900000-0000-7000-8000-000000000002"), true, true},
	{"ce-type", header("Ce-Type", "job.paused"), false, true},
	{"ce- header added", header("Ce-Extension", "1"), false, true},
	{"ce- header removed", without("Ce-Subject"), false, true},
	{"timestamp", header("Webhook-Timestamp", strconv.FormatInt(time.Now().Unix()-100, 10)), true, false},
	{"HMAC", header("Webhook-Signature", "v1,"+zeros(32)), true, false},
	{"signature", header("Signature", "sig1=:"+zeros(64)+":"), false, true},
	{"longer life", inInput(";expires=", ";expires=9"), false, true},
	{"another algorithm", inInput(`"ed25519"`, `"hmac-sha256"`), false, true},
	{"no signatures", without("Signature", "Signature-Input", "Webhook-Signature"), true, true},
}

func (v verifier) requireRefusals(t *testing.T, good captured, secret string, directory []byte) {
	t.Helper()
	for _, c := range tamperings {
		bad := good
		bad.Headers, bad.Body = maps.Clone(good.Headers), slices.Clone(good.Body)
		c.of(&bad)
		if c.bySecret {
			require.Error(t, v.verify(t, bad, secret, nil), "%s, by the secret", c.name)
		}
		if c.byKey {
			require.Error(t, v.verify(t, bad, "", directory), "%s, by the key", c.name)
		}
	}
	require.ErrorContains(t, v.verify(t, good, "", nil), "set WEBHOOK_SECRET", "a delivery without a check is refused")
	require.Error(t, v.verify(t, good, "whsec_"+zeros(32), nil), "another secret")
	var set struct {
		Keys []map[string]any `json:"keys"`
	}
	for member, value := range map[string]any{"kid": "another", "x": base64.RawURLEncoding.EncodeToString(make([]byte, 32))} {
		require.NoError(t, json.Unmarshal(directory, &set))
		set.Keys[0][member] = value
		other, err := json.Marshal(set)
		require.NoError(t, err)
		require.Error(t, v.verify(t, good, "", other), "another %s", member)
	}

	old := parsed[struct {
		Deliveries map[string]captured
		Secret     string
		Directory  json.RawMessage
	}](t, readText(t, "../../client/testdata/deliveries.json"))
	require.Error(t, v.verify(t, old.Deliveries["job.succeeded"], old.Secret, nil), "valid but too old")
	require.Error(t, v.verify(t, old.Deliveries["job.succeeded"], "", old.Directory), "valid but too old")
}
