package commands

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/verdict/api"
	"github.com/forgerun/forgerun/verdict/proxy"
)

var apiFlag = "`name` of a ready-made description of the API (" + strings.Join(api.Names(), ", ") + "), or a file"

const proxyHelp = `Puts a proxy before a server of any HTTP API, disturbs what its clients do, records
it, and judges. Nothing else is needed: everything is in memory.

Its own routes are those of ForgeRun's test bed, below /-/forgerun/:

  curl -X POST http://127.0.0.1:9000/-/forgerun/v1/testbed/sessions -d '{"profile": "flaky-network"}'
  curl -X POST http://127.0.0.1:9000/-/forgerun/v1/testbed/sessions/ID/end
  curl http://127.0.0.1:9000/-/forgerun/v1/testbed/sessions/ID/verdict
  curl -X PUT http://127.0.0.1:9000/-/forgerun/v1/testbed/faults -d '[{"match": {"operation": "submit", "nth": 1}, "effect": {"status": 503}}]'

With --profile a session begins at once, and its verdict is printed at the end (Ctrl-C).
"forgerun verdict --target" does all of it around a command.

Exit codes are those of "forgerun verdict".`

const proxyGrace = 2 * time.Second // for requests that are under way when it stops

// runningProxy is a proxy that listens.
type runningProxy struct {
	url, control string
	stop         func()
}

// startProxy starts a proxy before a target.
func startProxy(listen, target, apiName string, log io.Writer) (*runningProxy, error) {
	to, err := url.Parse(target)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" {
		return nil, fmt.Errorf("--target %q must be an address such as http://127.0.0.1:3000", target)
	}
	description, err := api.Load(apiName)
	if err != nil {
		return nil, fmt.Errorf("--api: %w", err)
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	server := proxy.New(to, description, slog.New(slog.NewTextHandler(log, nil))).Server()
	go func() { _ = server.Serve(listener) }() // it ends with Shutdown or Close
	at := "http://" + listener.Addr().String()
	return &runningProxy{url: at, control: at + strings.TrimSuffix(proxy.Prefix, "/"), stop: func() {
		ctx, cancel := context.WithTimeout(context.Background(), proxyGrace)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			_ = server.Close()
		}
	}}, nil
}

func (p Program) proxyCommand() *cobra.Command {
	v := verdictRun{Program: p}
	listen := ""
	c := &cobra.Command{
		Use: "proxy --target URL", Short: "Disturb and judge clients of any HTTP API, before your own server", Long: proxyHelp,
		Args: command.Exactly(0),
		Example: `  forgerun proxy --target http://127.0.0.1:3000
  forgerun proxy --target https://api.example.com --listen 127.0.0.1:9001 --api azure --profile overloaded`,
		RunE: func(c *cobra.Command, _ []string) error {
			if v.target == "" {
				return command.Usagef("--target is required: the address of your server (%s --help)", c.CommandPath())
			}
			return command.Code(v.serve(c.Context(), listen))
		},
	}
	f := c.Flags()
	f.StringVar(&v.target, "target", "", "`address` of the server")
	f.StringVar(&listen, "listen", "127.0.0.1:9000", "`address` to listen on")
	f.StringVar(&v.api, "api", "", apiFlag)
	f.StringVar(&v.request.Profile, "profile", "", "`name` of the faults of a session that begins at once; none without it")
	f.Int64Var(&v.request.Seed, "seed", 1, "`number` that the faults are drawn by")
	return c
}

// serve runs the proxy until it is told to end.
func (v *verdictRun) serve(ctx context.Context, listen string) int {
	p, err := startProxy(listen, v.target, v.api, v.Stderr)
	if err != nil {
		return v.Unusable(err)
	}
	defer p.stop()
	v.url, v.control = p.url, p.control
	_, _ = fmt.Fprintf(v.Stdout, "%s is before %s; sessions: %s/v1/testbed/sessions\n", p.url, v.target, p.control)
	if v.request.Profile == "" {
		<-ctx.Done()
		return exitOK
	}
	c, session, _, err := v.begin(ctx)
	if err != nil {
		return v.Unusable(err)
	}
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), verdictCalls)
	defer cancel()
	result, err := ended(ctx, c, session)
	if err != nil {
		return v.Unusable(err)
	}
	if err := writeVerdict(v.Stdout, term.Of(v.Stdout, os.Getenv), result); err != nil {
		return v.Unusable(err)
	}
	return v.exitCode(result)
}

// ended ends a session and gives its verdict.
func ended(ctx context.Context, c *client.Client, session string) (*client.Verdict, error) {
	if _, err := c.EndSession(ctx, session); err != nil {
		return nil, err
	}
	return c.Verdict(ctx, session)
}
