// Package forgeruntest judges HTTP clients in Go tests. Each test has its own session with faults. A test fails if its client breaks a
// "must" rule.
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

// Options configure a session.
type Options struct {
	Target  string   // API to call through a proxy; "": FORGERUN_TARGET. If that is also empty, ForgeRun at FORGERUN_URL without a proxy
	API     string   // API description, see "forgerun verdict --help"; "": FORGERUN_API. If that is also empty, only rules from standards
	Profile string   // fault profile; "none": no faults; "": FORGERUN_PROFILE. If that is also empty, "default"
	Seed    int64    // random seed of the faults; 0 means 1
	Rules   []string // rules to judge; nil: all that apply
	Strict  bool     // also fail the test for broken "should" rules; FORGERUN_STRICT=1 does the same
}

// Service is the address and key that a test's client uses.
type Service struct {
	URL string // base address
	Key string // API key for this test; "" if the target is not ForgeRun

	label string // value of the header ForgeRun-Session; "": no header
}

const patience = 30 * time.Second // time limit of the requests that end and judge a session

// Start begins a session. At the end of the test, it judges the session. Tests may run in parallel. If "forgerun verdict -- go test" runs
// the tests, the command begins and judges the sessions instead. The client must then use [Service.Transport], so that its requests are
// assigned to the test. Start skips the test if no server is configured.
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
		s, judge, err = startProxy(t, o)
	case at != "":
		s, judge, err = register(t.Context(), at)
	default:
		t.Skip("nothing to judge: set Target, set FORGERUN_TARGET or FORGERUN_URL, or run forgerun verdict -- go test")
	}
	if err == nil {
		err = o.begin(t, judge)
	}
	if err != nil {
		t.Fatal("forgeruntest:", err)
	}
	return s
}

// Transport adds the test's name to each request if "forgerun verdict" runs the tests. A nil base means http.DefaultTransport.
func (s *Service) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	if s.label == "" {
		return base
	}
	return labeled{base, s.label}
}

type labeled struct {
	base  http.RoundTripper
	label string
}

func (l labeled) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("ForgeRun-Session", l.label)
	return l.base.RoundTrip(r)
}

// startProxy starts a proxy for the target in this process. It returns the proxy's address, and a client that controls the proxy's
// sessions.
func startProxy(t testing.TB, o Options) (*Service, *client.Client, error) {
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

// begin starts a session. The session ends and is judged when the test ends.
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
		ctx, cancel := context.WithTimeout(context.Background(), patience) // not t.Context(), which is canceled by now
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
