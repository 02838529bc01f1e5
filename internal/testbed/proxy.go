package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/localhosts"
	"github.com/forgerun/forgerun/internal/testbed/summary"
	"github.com/forgerun/forgerun/verdict"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/proxy"
	"github.com/forgerun/forgerun/verdict/redact"
)

var apiFlag = "`name` of a ready-made description of the API (" + strings.Join(api.Names(), ", ") + "), or a file"

const proxyHelp = `Starts a proxy in front of any HTTP API, injects faults into its clients' traffic, records
it, and judges it. It needs no other server and keeps all of its data in memory.

The proxy answers requests below /-/forgerun/ itself, like ForgeRun's test bed:

  curl --json '{"profile": "flaky-network"}' http://127.0.0.1:9000/-/forgerun/v1/testbed/sessions
  curl -X POST http://127.0.0.1:9000/-/forgerun/v1/testbed/sessions/ID/end
  curl http://127.0.0.1:9000/-/forgerun/v1/testbed/sessions/ID/verdict
  curl -X PUT http://127.0.0.1:9000/-/forgerun/v1/testbed/faults \
       --json '[{"match": {"operation": "submit", "nth": 1}, "effect": {"status": 503}}]'

With --profile a session starts at once; Ctrl-C ends it and prints its verdict.
A proxy on loopback accepts only requests for localhost and this machine's names; --allow-host
adds other names. Web pages of other origins cannot send requests below /-/forgerun/.

"forgerun verdict --target" does all of this while it runs a command.

The exit codes are the same as for "forgerun verdict".`

const (
	proxyGrace    = 2 * time.Second // time for active requests to finish at shutdown
	headerTimeout = 10 * time.Second
)

type runningProxy struct {
	url, control, hook string
	rules              []string    // ids of the rules to judge if --rules is not set
	via                *forwarding // nil: clients use the proxy's address directly
	stop               func()
}

// proxied holds the settings of the proxy and of the API behind it.
type proxied struct {
	listen                    string
	targets                   []string // one target, or several if forward is set
	forward                   bool     // clients use the target's address, and environment variables make them use the proxy
	tls                       string   // file for the certificate that clients must trust; empty: no TLS
	api, openAPI              string
	hosts                     []string // additional host names of the proxy
	webhook, secret, hookPort string   // webhook: URL of the client's receiver; secret: signs webhooks; hookPort: listen address for webhooks
}

func (o *proxied) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&o.targets, "target", nil, "`address` of any HTTP API server to put a proxy in front of;\n"+
		"may be repeated if --forward is set")
	f.BoolVar(&o.forward, "forward", false, "run as a forward proxy, for clients with a fixed base address: they find the proxy through\n"+
		"HTTP_PROXY and HTTPS_PROXY, and trust it through SSL_CERT_FILE and similar variables; traffic to other hosts is not changed")
	f.StringVar(&o.api, "api", "", apiFlag)
	f.StringVar(&o.openAPI, "openapi", "", "`file` with the OpenAPI document of the API, to find the operations that submit, read and stream")
	f.StringVar(&o.tls, "tls", "", "`file` for a new certificate authority, which clients must trust: the proxy then listens with TLS")
	f.StringSliceVar(&o.hosts, "allow-host", nil, "`names` that requests may have in their Host header, besides the names of this machine;\n"+
		"only a proxy on loopback checks this header")
	f.StringVar(&o.webhook, "webhook", "", "`address` of the receiver of the target's webhooks, to inject faults into webhooks too: let the\n"+
		"target send them to the address in FORGERUN_WEBHOOK_URL instead")
	f.StringVar(&o.secret, "webhook-secret", os.Getenv("FORGERUN_WEBHOOK_SECRET"), "`secret` with which the target signs webhooks "+
		"(FORGERUN_WEBHOOK_SECRET)")
	f.Lookup("webhook-secret").DefValue = ""
	f.StringVar(&o.hookPort, "webhook-listen", "127.0.0.1:0", "`address` at which the proxy receives the target's webhooks")
}

type servers []*http.Server

func (all *servers) serve(s *http.Server, listen func(at string) (net.Listener, error), at string) (address string, err error) {
	listener, err := listen(at)
	if err != nil {
		return "", err
	}
	*all = append(*all, s)
	go func() { _ = s.Serve(listener) }() // runs until Shutdown or Close
	return localhosts.Reachable(listener.Addr()), nil
}

func (all *servers) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), proxyGrace)
	defer cancel()
	for _, s := range *all {
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
	}
}

// If o.webhook is set, start also listens for webhooks.
func (o *proxied) start(log io.Writer) (p *runningProxy, err error) {
	if o.forward && o.tls != "" {
		return nil, errors.New("--forward creates certificates for the target's host itself: it cannot be combined with --tls")
	}
	targets, err := o.addresses()
	if err != nil {
		return nil, err
	}
	description, err := o.describe()
	if err != nil {
		return nil, err
	}
	before := proxy.New(targets[0], description, slog.New(slog.NewTextHandler(log, nil)))
	listening, _, _ := net.SplitHostPort(o.listen) // Listen reports the error
	before.AllowHosts(append(o.hosts, listening)...)
	scheme := "http://"
	if o.tls != "" {
		scheme = "https://"
		if err := o.secure(before); err != nil {
			return nil, fmt.Errorf("--tls: %w", err)
		}
	}
	var ca []byte
	if o.forward {
		if ca, err = before.Forward(targets[1:]...); err != nil {
			return nil, fmt.Errorf("--forward: %w", err)
		}
	}
	p = &runningProxy{rules: description.RuleIDs()}
	var all servers
	p.stop = all.stop
	if p.url, err = all.serve(before.Server(), before.Listen, o.listen); err != nil {
		return nil, err
	}
	p.url = scheme + p.url
	own := &http.Server{Handler: before.Own(), ReadHeaderTimeout: headerTimeout} // not on the proxy's socket, which a fault may close
	if p.control, err = all.serve(own, plainly, "127.0.0.1:0"); err != nil {
		p.stop()
		return nil, err
	}
	p.control = "http://" + p.control + strings.TrimSuffix(proxy.Prefix, "/")
	if o.forward {
		if p.via, err = newForwarding(p.url, ca); err != nil {
			p.stop()
			return nil, fmt.Errorf("--forward: %w", err)
		}
		p.url, p.stop = strings.TrimSuffix(o.targets[0], "/"), func() { all.stop(); _ = p.via.close() }
	}
	if o.webhook != "" {
		if p.hook, err = o.startHook(before, &all); err != nil {
			p.stop()
			return nil, err
		}
	}
	return p, nil
}

func (o *proxied) addresses() (all []*url.URL, err error) {
	if len(o.targets) > 1 && !o.forward {
		return nil, errors.New("a proxy has one --target; several targets need --forward")
	}
	for _, text := range o.targets {
		target, err := address("--target", text)
		if err == nil && strings.Trim(target.Path, "/") != "" {
			err = fmt.Errorf("--target %q must be an address without a path: put the path in the command's requests", redact.URL(text))
		}
		if err != nil {
			return nil, err
		}
		all = append(all, target)
	}
	return all, nil
}

func (o *proxied) shown() string {
	var all []string
	for _, text := range o.targets {
		all = append(all, redact.URL(text))
	}
	return strings.Join(all, ", ")
}

// startHook starts the webhook listener and returns the URL to which the target must send webhooks.
func (o *proxied) startHook(before *proxy.Proxy, all *servers) (string, error) {
	receiver, err := address("--webhook", o.webhook)
	if err != nil {
		return "", err
	}
	hook := before.Hook(receiver, o.secret)
	at, err := all.serve(&http.Server{Handler: hook, ReadHeaderTimeout: headerTimeout}, hook.Listen, o.hookPort)
	// The returned URL has no query, because the query of the receiver's URL may contain a secret. The proxy adds the query when it forwards
	// a webhook.
	return "http://" + at + receiver.EscapedPath(), err
}

// secure makes the proxy use TLS and writes the certificate that its clients must trust.
func (o *proxied) secure(before *proxy.Proxy) error {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return err
	}
	authority, err := before.UseTLS(host)
	if err != nil {
		return err
	}
	return os.WriteFile(o.tls, authority, 0o644)
}

func plainly(at string) (net.Listener, error) { return net.Listen("tcp", at) }

func (o *proxied) describe() (*api.API, error) {
	a, err := api.Load(o.api)
	if err != nil {
		return nil, fmt.Errorf("--api: %w", err)
	}
	if o.openAPI == "" {
		return a, nil
	}
	text, err := os.ReadFile(o.openAPI)
	if err == nil {
		err = a.AddOpenAPI(text)
	}
	if err != nil {
		return nil, fmt.Errorf("--openapi: %w", err)
	}
	return a, nil
}

func address(flag, text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s %q must be an address such as http://127.0.0.1:3000", flag, redact.URL(text))
	}
	return u, nil
}

func proxyCommand(p command.Program) *cobra.Command {
	v, schema := verdictRun{Program: p}, false
	c := &cobra.Command{
		Use: "proxy --target URL", Short: "Judge clients of any HTTP API through a proxy that injects faults", Long: proxyHelp,
		Args: command.Exactly(0),
		Example: `  forgerun proxy --target http://127.0.0.1:3000
  forgerun proxy --target https://api.example.com --forward --profile overloaded
  forgerun proxy --target https://api.example.com --listen 127.0.0.1:9001 --api azure --profile overloaded`,
		RunE: func(c *cobra.Command, _ []string) error {
			if schema {
				_, err := fmt.Fprint(v.Stdout, api.Schema)
				return err
			}
			if len(v.targets) == 0 {
				return command.Usagef("--target is required: the address of your server (%s --help)", c.CommandPath())
			}
			return command.Code(v.serve(c.Context()))
		},
	}
	f := c.Flags()
	v.flags(f)
	f.BoolVar(&schema, "schema", false, "print the JSON Schema of the descriptions that --api takes, and exit")
	f.StringVar(&v.listen, "listen", "127.0.0.1:9000", "`address` to listen on")
	f.StringVar(&v.profile, "profile", "", "`name` of a fault profile: start a session with it at once; default: no session")
	f.Int64Var(&v.seed, "seed", 1, "`number` that seeds the choice of faults")
	complete(c, profileNames(), "profile")
	return c
}

func (v *verdictRun) serve(ctx context.Context) int {
	p, err := v.start(v.Stderr)
	if err != nil {
		return v.Unusable(err)
	}
	defer p.stop()
	v.url, v.control = p.url, p.control
	if p.via != nil {
		_, _ = fmt.Fprintf(v.Stdout, "%s is a forward proxy that judges requests to %s. In the shell of your client:\n\n%s\n", p.via.proxy,
			v.shown(), p.via.exports())
	} else {
		_, _ = fmt.Fprintf(v.Stdout, "%s forwards to %s; sessions: %[1]s%[3]sv1/testbed/sessions\n", p.url, v.shown(), proxy.Prefix)
	}
	if host, port, err := net.SplitHostPort(v.listen); err == nil && (host == "" || net.ParseIP(host).IsUnspecified()) {
		_, _ = fmt.Fprintf(v.Stdout, "From another machine or container: use this machine's name, with port %s or the port mapped to it\n", port)
	}
	_, _ = fmt.Fprintf(v.Stdout, "While a fault refuses connections, the sessions are at %s/v1/testbed/sessions\n", p.control)
	if p.hook != "" {
		_, _ = fmt.Fprintf(v.Stdout, "%s forwards webhooks to %s\n", p.hook, redact.URL(v.webhook))
	}
	if v.profile == "" {
		<-ctx.Done()
		return exitOK
	}
	as, err := v.begin(ctx, conditions{profile: v.profile, seed: v.seed})
	if err != nil {
		return v.Unusable(err)
	}
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictCalls)
	defer cancel()
	sessions, err := as.end(ctx)
	if err != nil {
		return v.Unusable(err)
	}
	shown := &summary.Summary{}
	for _, n := range sessions {
		shown.Add("", n.Verdict)
	}
	if err := v.writeGuess(shown); err != nil {
		return v.Unusable(err)
	}
	if err := shown.Text(v.Stdout, term.Of(v.Stdout, os.Getenv)); err != nil {
		return v.Unusable(err)
	}
	switch {
	case shown.Failed():
		return exitDifferent
	case shown.Verdict() == verdict.NothingJudged:
		return exitUnusable
	}
	return exitOK
}
