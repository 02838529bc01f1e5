// Package forgeruntest judges HTTP clients in Go tests: each test has faults and a session of its own, and fails by the rules that say
// must and its client broke.
//
//	func TestOrder(t *testing.T) {
//		t.Parallel()
//		service := forgeruntest.Start(t, forgeruntest.Options{Target: server.URL})
//		orders := NewOrders(service.URL) // the client under test
//		...
//	}
package forgeruntest

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/proxy"
)

// Options are the settings of a test's client, and its faults.
type Options struct {
	Target  string   // address of the server of any API, before which a proxy is put; "": FORGERUN_TARGET, or the ForgeRun at FORGERUN_URL
	API     string   // description of its API: a name of "forgerun verdict --help", or a file; "": FORGERUN_API, or the standards alone
	Profile string   // faults: "default" if it is "", or FORGERUN_PROFILE; "none" for no faults
	Seed    int64    // that the faults are drawn by; 0: 1
	Rules   []string // to judge by; nil: all that apply
	Strict  bool     // a test also fails by the rules that say should; or FORGERUN_STRICT=1
}

// Service is the service of one test's client.
type Service struct {
	URL string // base address
	Key string // API key of a client of this test's own; "" before another API

	label string // that requests carry; "": none
}

const patience = 30 * time.Second // for requests about the session

// Start begins a session, which is judged when the test and its subtests are over. Tests may run in parallel. Under "forgerun verdict"
// that judges, and requests must go through [Service.Transport] to be judged by test. Without anything to judge the test is skipped.
func Start(t testing.TB, o Options) *Service {
	t.Helper()
	o.Target, o.API = cmp.Or(o.Target, os.Getenv("FORGERUN_TARGET")), cmp.Or(o.API, os.Getenv("FORGERUN_API"))
	at := os.Getenv("FORGERUN_URL")
	if os.Getenv("FORGERUN_SESSION") != "" {
		return &Service{URL: at, Key: os.Getenv("FORGERUN_API_KEY"), label: t.Name()}
	}
	var s *Service
	var judge *client.Client
	var err error
	switch {
	case o.Target != "":
		s, judge, err = before(t, o)
	case at != "":
		s, judge, err = register(t.Context(), at)
	default:
		t.Skip("nothing to judge: give Target, set FORGERUN_TARGET or FORGERUN_URL, or run forgerun verdict -- go test")
	}
	if err == nil {
		err = o.begin(t, judge)
	}
	if err != nil {
		t.Fatal("forgeruntest:", err)
	}
	return s
}

// Transport sends requests with the test's name, where "forgerun verdict" judges; a nil base is http.DefaultTransport.
func (s *Service) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	if s.label == "" {
		return base
	}
	return labelled{base, s.label}
}

type labelled struct {
	base  http.RoundTripper
	label string
}

func (l labelled) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("ForgeRun-Session", l.label)
	return l.base.RoundTrip(r)
}

// before starts a proxy in front of the target, in this process, and returns it with a client of its own routes.
func before(t testing.TB, o Options) (*Service, *client.Client, error) {
	target, err := url.Parse(o.Target)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" || strings.Trim(target.Path, "/") != "" {
		return nil, nil, fmt.Errorf("the target %q must be an address without a path, such as http://127.0.0.1:3000", o.Target)
	}
	description, err := api.Load(o.API)
	if err != nil {
		return nil, nil, err
	}
	p := proxy.New(target, description, slog.New(slog.NewTextHandler(io.Discard, nil)))
	serve := func(s *http.Server, listen func(string) (net.Listener, error)) (string, error) {
		listener, err := listen("127.0.0.1:0")
		if err != nil {
			return "", err
		}
		t.Cleanup(func() { _ = s.Close() })
		go func() { _ = s.Serve(listener) }() // until Close
		return "http://" + listener.Addr().String(), nil
	}
	at, err := serve(p.Server(), p.Listen)
	if err != nil {
		return nil, nil, err
	}
	plainly := func(at string) (net.Listener, error) { return net.Listen("tcp", at) }
	own, err := serve(&http.Server{Handler: p.Own(), ReadHeaderTimeout: patience}, plainly)
	if err != nil {
		return nil, nil, err
	}
	judge, err := client.New(client.Config{URL: own + strings.TrimSuffix(proxy.Prefix, "/")})
	return &Service{URL: at}, judge, err
}

// register makes a client of the ForgeRun at an address.
func register(ctx context.Context, at string) (*Service, *client.Client, error) {
	anybody, err := client.New(client.Config{URL: at})
	if err != nil {
		return nil, nil, err
	}
	id, err := anybody.CreateClient(ctx)
	if err != nil {
		return nil, nil, err
	}
	key, err := anybody.CreateKey(ctx, id, false)
	if err != nil {
		return nil, nil, err
	}
	return &Service{URL: at, Key: key.APIKey}, anybody.WithKey(key.APIKey), nil
}

// begin starts the session, and ends it with the test.
func (o Options) begin(t testing.TB, judge *client.Client) error {
	profile := cmp.Or(o.Profile, os.Getenv("FORGERUN_PROFILE"), "default")
	if profile == "none" {
		profile = ""
	}
	began, err := judge.StartSession(t.Context(), client.SessionRequest{Profile: profile, Seed: cmp.Or(o.Seed, 1), Rules: o.Rules})
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience) // the test's own is over
		defer cancel()
		_, err := judge.EndSession(ctx, began.SessionID)
		if err != nil {
			t.Error("forgeruntest:", err)
			return
		}
		v, err := judge.Verdict(ctx, began.SessionID)
		if err != nil {
			t.Error("forgeruntest:", err)
			return
		}
		for _, r := range v.Results {
			if r.Status == "fail" || r.Status == "warn" && (o.Strict || os.Getenv("FORGERUN_STRICT") != "") {
				t.Error(inWords(&r))
			}
		}
	})
	return nil
}

// inWords describes a broken rule: the first mistake, its requests, and the sentence of the standard.
func inWords(r *client.RuleResult) string {
	first := r.Evidence[0]
	lines := []string{fmt.Sprintf("%s: %s", r.Rule, r.Title), first.Found + " " + first.Expected}
	for _, m := range []*client.Moment{first.Before, first.Request} {
		if m == nil {
			continue
		}
		line := fmt.Sprintf("%s %s, response: %s", m.At.UTC().Format("15:04:05.000"), m.Request, m.Answer)
		if m.Fault != "" {
			line += "; fault: " + m.Fault
		}
		lines = append(lines, line)
	}
	return strings.Join(append(lines, fmt.Sprintf("%q %s", r.Quote, r.See)), "\n  ")
}
