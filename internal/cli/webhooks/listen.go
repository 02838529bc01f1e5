package webhooks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/session"
)

// listenFlags say where to listen, and what to do with each message.
type listenFlags struct {
	addr, publicURL, run string
	events               []string
	count                int
	structured           bool
}

func listenCommand(s *session.Session) *cobra.Command {
	var f listenFlags
	c := &cobra.Command{
		Use: "listen", Short: "Receive events here: registers a webhook, verifies and prints each message", Args: command.Exactly(0),
		Long: "Starts a receiver on this machine, registers it as a webhook of the client, and prints each message once both of its\n" +
			"signatures are verified. With --exec a command is run for each: it gets the body on standard input, and FORGERUN_EVENT,\n" +
			"FORGERUN_EVENT_ID, FORGERUN_JOB_ID and FORGERUN_WEBHOOK_ID; if it fails the message is answered 500 and comes again.\n" +
			"The webhook is deleted at the end (Ctrl-C).\n\n" +
			"The service must be able to reach the receiver: forgerun dev can on this machine, another one through --public-url, and on\n" +
			"private addresses only with FORGERUN_WEBHOOK_ALLOW_PRIVATE.",
		Example: "  forgerun webhooks listen\n  forgerun webhooks listen --events 'job.failed' --exec ./notify.sh\n" +
			"  forgerun webhooks listen --addr :9000 --public-url https://tunnel.example.com",
		RunE: func(c *cobra.Command, _ []string) error { return listen(c.Context(), s, f) },
	}
	flags := c.Flags()
	flags.StringVar(&f.addr, "addr", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	flags.StringVar(&f.publicURL, "public-url", "", "`URL` at which the service reaches that (default: the address itself)")
	flags.StringSliceVar(&f.events, "events", []string{"*"}, "`names` of events, job.* or *")
	flags.StringVar(&f.run, "exec", "", "`command` to run for each message, by the shell")
	flags.IntVar(&f.count, "count", 0, "end after so many `messages`; 0: go on")
	flags.BoolVar(&f.structured, "structured", false, "get the whole CloudEvent in the body (content mode structured)")
	return c
}

// listen receives until it has enough, or ctx ends.
func listen(ctx context.Context, s *session.Session, f listenFlags) error {
	api, err := s.Client()
	if err != nil {
		return err
	}
	printer, err := s.Printer()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", f.addr)
	if err != nil {
		return command.Usagef("--addr: %w", err)
	}
	r := &receiver{
		ctx: ctx, printer: printer, exec: f.run, stderr: s.Stderr, note: s.Notef, most: f.count, enough: make(chan struct{}),
		directory: api.Directory(), path: "/" + rand.Text(), registered: make(chan struct{}), environ: os.Environ(),
	}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	base := f.publicURL
	if base == "" {
		base = "http://" + listener.Addr().String()
	}
	webhook, err := register(ctx, api, strings.TrimRight(base, "/")+r.path, f)
	if err != nil {
		return err
	}
	defer unregister(ctx, api, webhook.WebhookID, s.Notef)
	r.begin(webhook)
	s.Notef("Webhook %s gets %s at %s. Ctrl-C deletes it.", webhook.WebhookID, strings.Join(f.events, ", "), webhook.URL)
	select {
	case err := <-served:
		return err
	case <-r.enough:
		return r.finish(server)
	case <-ctx.Done():
		return nil
	}
}

func register(ctx context.Context, api *client.Client, url string, f listenFlags) (*client.Webhook, error) {
	request := client.WebhookRequest{URL: url, Events: f.events, Description: "forgerun webhooks listen"}
	if f.structured {
		request.ContentMode = "structured"
	}
	webhook, err := api.CreateWebhook(ctx, request)
	if problem, ok := errors.AsType[*client.Problem](err); ok && problem.Status == http.StatusBadRequest && f.publicURL == "" {
		return nil, fmt.Errorf("%w: a service that allows no private addresses needs --public-url", err)
	}
	return webhook, err
}
