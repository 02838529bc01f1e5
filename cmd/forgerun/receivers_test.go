package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"
)

// snippets is where the receivers of docs/reference/webhooks.md are.
const snippets = "../../docs/examples/webhooks"

// captured is a delivery as its receiver saw it, in the form that the snippets
// read from standard input.
type captured struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"` // as registered
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body_base64"`
}

// capture keeps a request whose body has been read.
func capture(r *http.Request, url string, body []byte) captured {
	c := captured{Method: r.Method, URL: url, Headers: map[string]string{}, Body: body}
	for name, values := range r.Header {
		c.Headers[name] = strings.Join(values, ", ")
	}
	return c
}

// verifier is one of the documented ways to verify a delivery.
type verifier struct {
	name    string
	missing string   // what has to be installed for it, "" if all is there
	command []string // that verifies what it reads
}

// verifiers gives all of them. Call require on each, in a test of its own, so
// that what is not installed is skipped by name.
func verifiers(t *testing.T) []verifier {
	t.Helper()
	return []verifier{goVerifier(t), npmVerifier(t), nodeVerifier(), pythonVerifier(t)}
}

func (v verifier) require(t *testing.T) {
	t.Helper()
	if v.missing != "" {
		t.Skip("deliveries are not verified with " + v.name + ": " + v.missing)
	}
}

// verify runs the verifier: nil if it accepts the delivery, its reason if it
// does not. An empty secret and a nil directory are not looked at. A verifier
// that breaks down fails the test, since that is no refusal.
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
	if directory != nil {
		file := filepath.Join(t.TempDir(), "directory.json")
		require.NoError(t, os.WriteFile(file, directory, 0o600))
		cmd.Env = append(cmd.Env, "DIRECTORY="+file)
	}
	err = cmd.Run()
	said := strings.TrimSpace(stdout.String())
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 && said != "" && stderr.Len() == 0 {
		require.NotRegexp(t, "undefined|not a function|has no attribute|nil pointer", said, "%s broke down", v.name)
		return errors.New(said)
	}
	require.NoError(t, err, "%s broke down: %s%s", v.name, said, stderr.String())
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

func nodeVerifier() verifier {
	return verifier{
		name: "Node alone", missing: missingProgram("node", "install Node 20 or later"),
		command: []string{"node", filepath.Join(snippets, "verify-plain.mjs")},
	}
}

// npmVerifier runs a copy of the snippet beside the packages.
func npmVerifier(t *testing.T) verifier {
	v := verifier{name: "Node with npm packages", missing: missingProgram("node", "install Node 20 or later")}
	if v.missing == "" {
		v.missing = missingProgram("npm", "install npm")
	}
	if v.missing != "" {
		return v
	}
	packages, err := npmPackages()
	if err != nil {
		v.missing = "its npm packages cannot be installed; run npm ci in docs/examples/webhooks to see why: " + err.Error()
		return v
	}
	dir := t.TempDir()
	v.command = []string{"node", filepath.Join(dir, "verify.mjs")}
	script, err := os.ReadFile(filepath.Join(snippets, "verify.mjs"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(v.command[1], script, 0o600))
	require.NoError(t, os.Symlink(packages, filepath.Join(dir, "node_modules")))
	return v
}

// npmPackages installs the packages that the snippets' lock file pins, once for
// each content of that file, and gives their folder. Others may install them at
// the same time: who is first puts them in place.
var npmPackages = sync.OnceValues(func() (string, error) {
	lock, err := os.ReadFile(filepath.Join(snippets, "package-lock.json"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	sum := sha256.Sum256(lock)
	home := filepath.Join(cache, "forgerun-test")
	place := filepath.Join(home, "npm-"+hex.EncodeToString(sum[:8]))
	packages := filepath.Join(place, "node_modules")
	if _, err := os.Stat(packages); err == nil {
		return packages, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(home, "installing-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(snippets, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(work, name), content, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error")
	install.Dir = work
	if output, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, bytes.TrimSpace(output))
	}
	if err := os.Rename(work, place); err != nil {
		if _, lost := os.Stat(packages); lost != nil {
			return "", err
		}
	}
	return packages, nil
})

func pythonVerifier(t *testing.T) verifier {
	v := verifier{name: "Python", missing: missingProgram("python3", "install Python 3.9 or later")}
	v.command = []string{"python3", filepath.Join(snippets, "verify.py")}
	if v.missing == "" && exec.CommandContext(t.Context(), "python3", "-c", "import cryptography").Run() != nil {
		v.missing = "its package cryptography is missing; pip install cryptography"
	}
	return v
}

func missingProgram(name, remedy string) string {
	if _, err := exec.LookPath(name); err != nil {
		return name + " is not on PATH; " + remedy
	}
	return ""
}

// signer makes deliveries as the specification of deliveries says, with code of
// its own.
type signer struct {
	private  ed25519.PrivateKey
	keyID    string
	secrets  []string
	created  time.Time
	optional []string // components beyond the always covered ones
}

var coveredAlways = []string{"@method", "@target-uri", "content-type", "content-digest", "webhook-id"}

func newSigner(t *testing.T) signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return signer{private: private, keyID: "key-" + rand.Text(), secrets: []string{newSecret()}, created: time.Now()}
}

func newSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// binary gives a delivery of an event in CloudEvents' binary mode.
func (s signer) binary(t *testing.T) captured {
	t.Helper()
	c := captured{
		Method: "POST", URL: "https://example.com:8443/hooks?from=forgerun&x=%20y",
		Body: []byte("{\"jobId\":\"0190\",\"jobStatus\":\"COMPLETED\",\"detail\":\"Größe\"}\n"),
		Headers: map[string]string{
			"Content-Type": "application/json", "Ce-Specversion": "1.0", "Ce-Id": "0190-5", "Ce-Type": "job.succeeded",
			"Ce-Source": "https://forgerun.example.com/v1", "Ce-Subject": "jobs/0190", "Ce-Time": "2026-01-02T03:04:05.000000Z",
			"Ce-Sequence": "5", "Ce-Sequencetype": "Integer",
		},
	}
	s.optional = []string{"ce-specversion", "ce-id", "ce-type", "ce-source", "ce-subject", "ce-time", "ce-sequence", "ce-sequencetype"}
	return s.sign(t, c)
}

// structured gives one in the structured mode.
func (s signer) structured(t *testing.T) captured {
	t.Helper()
	return s.sign(t, captured{
		Method: "POST", URL: "http://127.0.0.1:9/", Body: []byte(`{"specversion":"1.0","id":"1","type":"webhook.test"}`),
		Headers: map[string]string{"Content-Type": "application/cloudevents+json"},
	})
}

// sign adds the headers that prove a delivery.
func (s signer) sign(t *testing.T, c captured) captured {
	t.Helper()
	const id = "01900000-0000-7000-8000-000000000001"
	sum := sha256.Sum256(c.Body)
	c.Headers["Content-Digest"] = "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	c.Headers["Webhook-Id"] = id
	c.Headers["Webhook-Timestamp"] = strconv.FormatInt(s.created.Unix(), 10)
	var signatures []string
	for _, secret := range s.secrets {
		webhook, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		signature, err := webhook.Sign(id, s.created, c.Body)
		require.NoError(t, err)
		signatures = append(signatures, signature)
	}
	if signatures != nil {
		c.Headers["Webhook-Signature"] = strings.Join(signatures, " ")
	}
	values := map[string]string{"@method": c.Method, "@target-uri": c.URL}
	for name, value := range c.Headers {
		values[strings.ToLower(name)] = value
	}
	var base strings.Builder
	list := httpsfv.InnerList{Params: httpsfv.NewParams()}
	for _, name := range slices.Concat(coveredAlways, s.optional) {
		list.Items = append(list.Items, httpsfv.NewItem(name))
		fmt.Fprintf(&base, "\"%s\": %s\n", name, values[name])
	}
	list.Params.Add("created", s.created.Unix())
	list.Params.Add("expires", s.created.Unix()+300)
	list.Params.Add("keyid", s.keyID)
	list.Params.Add("alg", "ed25519")
	params, err := httpsfv.Marshal(httpsfv.List{list})
	require.NoError(t, err)
	base.WriteString(`"@signature-params": ` + params)
	c.Headers["Signature-Input"] = "sig1=" + params
	c.Headers["Signature"] = "sig1=:" + base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, []byte(base.String()))) + ":"
	return c
}

// directoryOf is the published document of the signers' keys.
func directoryOf(t *testing.T, signers ...signer) []byte {
	t.Helper()
	keys := []any{}
	for _, s := range signers {
		public := s.private.Public().(ed25519.PublicKey)
		keys = append(keys, map[string]any{
			"kty": "OKP", "crv": "Ed25519", "use": "sig", "kid": s.keyID, "x": base64.RawURLEncoding.EncodeToString(public),
		})
	}
	document, err := json.Marshal(map[string]any{"keys": keys})
	require.NoError(t, err)
	return document
}

// The documented receivers accept what is signed as documented.
func TestReceiversAccept(t *testing.T) {
	t.Parallel()
	for _, v := range verifiers(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.require(t)
			s, next := newSigner(t), newSigner(t)
			require.NoError(t, v.verify(t, s.binary(t), s.secrets[0], directoryOf(t, s)))
			require.NoError(t, v.verify(t, s.structured(t), s.secrets[0], directoryOf(t, s)))
			require.NoError(t, v.verify(t, s.binary(t), "", directoryOf(t, next, s)), "two keys are published while one is replaced")
			rotated := s
			rotated.secrets = []string{next.secrets[0], s.secrets[0]}
			require.NoError(t, v.verify(t, rotated.binary(t), s.secrets[0], nil), "the old secret, while it is valid")
			require.NoError(t, v.verify(t, rotated.binary(t), next.secrets[0], nil), "the new secret")
			callback := s
			callback.secrets = nil
			require.NoError(t, v.verify(t, callback.binary(t), "", directoryOf(t, s)), "a callback has no secret")
			require.ErrorContains(t, v.verify(t, s.binary(t), "", nil), "set WEBHOOK_SECRET", "nothing verified is not verified")
		})
	}
}

// They refuse everything else: by the secret, by the key, or either way.
func TestReceiversRefuse(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*captured) { return func(c *captured) { c.Headers[name] = value } }
	without := func(names ...string) func(*captured) {
		return func(c *captured) {
			for _, name := range names {
				delete(c.Headers, name)
			}
		}
	}
	cases := []struct {
		name          string
		tamper        func(*captured)
		signer        func(*signer)
		bySecret, key bool
	}{
		{name: "body", tamper: func(c *captured) { c.Body[3] ^= 1 }, bySecret: true, key: true},
		{name: "body and digest", tamper: func(c *captured) {
			c.Body = []byte(`{}`)
			sum := sha256.Sum256(c.Body)
			c.Headers["Content-Digest"] = "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
		}, bySecret: true, key: true},
		{name: "digest", tamper: header("Content-Digest", "sha-256=:AAAA:"), key: true},
		{name: "no digest", tamper: without("Content-Digest"), key: true},
		{name: "method", tamper: func(c *captured) { c.Method = "PUT" }, key: true},
		{name: "target URI", tamper: func(c *captured) { c.URL += "z" }, key: true},
		{name: "content type", tamper: header("Content-Type", "text/plain"), key: true},
		{name: "webhook-id", tamper: header("Webhook-Id", "01900000-0000-7000-8000-000000000002"), bySecret: true, key: true},
		{name: "ce-type", tamper: header("Ce-Type", "job.failed"), key: true},
		{name: "ce- header added", tamper: header("Ce-Extension", "1"), key: true},
		{name: "ce- header removed", tamper: without("Ce-Subject"), key: true},
		{name: "ce- header not covered", tamper: header("Ce-Id", "1"), key: true},
		{name: "timestamp", tamper: header("Webhook-Timestamp", strconv.FormatInt(time.Now().Unix()-1, 10)), bySecret: true},
		{name: "timestamp of an hour ago", signer: func(s *signer) { s.created = time.Now().Add(-time.Hour) }, bySecret: true, key: true},
		{name: "timestamp of the future", signer: func(s *signer) { s.created = time.Now().Add(time.Hour) }, bySecret: true, key: true},
		{name: "HMAC", tamper: header("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(make([]byte, 32))), bySecret: true},
		{name: "another secret", signer: func(s *signer) { s.secrets = []string{newSecret()} }, bySecret: true},
		{name: "signature", tamper: header("Signature", "sig1=:"+base64.StdEncoding.EncodeToString(make([]byte, 64))+":"), key: true},
		{name: "unknown key", signer: func(s *signer) { s.keyID = "unknown" }, key: true},
		{name: "another key under a known id", signer: func(s *signer) { _, s.private, _ = ed25519.GenerateKey(rand.Reader) }, key: true},
		{name: "longer life", tamper: func(c *captured) {
			c.Headers["Signature-Input"] = strings.Replace(c.Headers["Signature-Input"], ";expires=", ";expires=9", 1)
		}, key: true},
		{name: "another algorithm", tamper: func(c *captured) {
			c.Headers["Signature-Input"] = strings.Replace(c.Headers["Signature-Input"], `"ed25519"`, `"hmac-sha256"`, 1)
		}, key: true},
		{name: "no signatures", tamper: without("Signature", "Signature-Input", "Webhook-Signature"), bySecret: true, key: true},
	}
	for _, v := range verifiers(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.require(t)
			for _, c := range cases {
				good := newSigner(t)
				bad := good
				send := signer.binary
				if c.signer != nil {
					c.signer(&bad)
				}
				if c.name == "ce- header not covered" {
					send = signer.structured // has none
				}
				d := send(bad, t)
				if c.tamper != nil {
					c.tamper(&d)
				}
				if c.bySecret {
					require.Error(t, v.verify(t, d, good.secrets[0], nil), "%s, by the secret", c.name)
				}
				if c.key {
					require.Error(t, v.verify(t, d, "", directoryOf(t, good)), "%s, by the key", c.name)
				}
			}
		})
	}
}

// docs/reference/webhooks.md quotes the snippets as they are, each of them.
func TestWebhooksPageQuotesTheSnippets(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/webhooks.md")
	require.NoError(t, err)
	quoted := map[string]bool{}
	for _, quote := range regexp.MustCompile("(?s)<!-- from (\\S+) -->\n```[a-z]+\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
		file, err := os.ReadFile(filepath.Join("../../docs/reference", quote[1]))
		require.NoError(t, err)
		require.Contains(t, string(file), quote[2], "a quote from %s", quote[1])
		quoted[quote[1]] = true
	}
	for _, name := range []string{"go/verify.go", "verify.mjs", "verify-plain.mjs", "verify.py"} {
		require.True(t, quoted["../examples/webhooks/"+name], "%s is not quoted", name)
	}
}
