package webhooks

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
	"github.com/forgerun/forgerun/internal/cli/term"
)

// listenFlags say where to listen, and what to do with each message.
type listenFlags struct {
	addr, publicURL, forward string
	command                  []string
	events                   []string
	count                    int
	structured               bool
}

func listenCommand(s *session.Session) *cobra.Command {
	var f listenFlags
	c := &cobra.Command{
		Use: "listen [-- COMMAND [ARGUMENT...]]", Short: "Receive events here: registers a webhook, verifies and prints each message",
		Long: "Starts a receiver on this machine, registers it as a webhook of the client, and prints each message once both of its\n" +
			"signatures are verified. With --forward each is also sent to that URL, whose answer the service gets; the secret that the\n" +
			"webhook signs with is printed, the signature with a key is of the address of this receiver. With a COMMAND that is run for\n" +
			"each: it gets the body on standard input, and FORGERUN_EVENT, FORGERUN_EVENT_ID, FORGERUN_JOB_ID and FORGERUN_WEBHOOK_ID;\n" +
			"if it fails the message is answered 500 and comes again. The webhook is deleted at the end (Ctrl-C).\n\n" +
			"The service must be able to reach the receiver: forgerun dev can on this machine, another one through --public-url, and on\n" +
			"private addresses only with FORGERUN_WEBHOOK_ALLOW_PRIVATE.",
		RunE: func(c *cobra.Command, args []string) error {
			if dash := c.ArgsLenAtDash(); len(args) > 0 && dash != 0 {
				return command.Usagef("a command stands after --: forgerun webhooks listen -- %s", strings.Join(args, " "))
			}
			f.command = args
			return listen(c.Context(), s, f)
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.addr, "addr", "127.0.0.1:0", "`address` to listen on; port 0 takes a free one")
	flags.StringVar(&f.publicURL, "public-url", "", "`URL` at which the service reaches that (default: the address itself)")
	flags.StringSliceVar(&f.events, "events", []string{"*"}, "`names` of events, job.* or *")
	flags.StringVar(&f.forward, "forward", "", "`URL` to send each message to")
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
	if target, err := url.Parse(f.forward); f.forward != "" && (err != nil || target.Host == "") {
		return command.Usagef("--forward %q: it must be a URL, such as http://localhost:3000/hook", f.forward)
	}
	listener, err := net.Listen("tcp", f.addr)
	if err != nil {
		return command.Usagef("--addr: %w", err)
	}
	r := &receiver{
		ctx: ctx, printer: printer, flags: f, stderr: s.Stderr, note: s.Notef, enough: make(chan struct{}),
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
	if f.forward != "" {
		s.Notef("What is forwarded to %s is signed with the secret %s", f.forward, webhook.Secret)
	}
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

func register(ctx context.Context, api *client.Client, address string, f listenFlags) (*client.Webhook, error) {
	request := client.WebhookRequest{URL: address, Events: f.events, Description: "forgerun webhooks listen"}
	if f.structured {
		request.ContentMode = "structured"
	}
	webhook, err := api.CreateWebhook(ctx, request)
	if problem, ok := errors.AsType[*client.Problem](err); ok && problem.Status == http.StatusBadRequest && f.publicURL == "" {
		return nil, fmt.Errorf("%w: a service that allows no private addresses needs --public-url", err)
	}
	return webhook, err
}

const (
	maxBody   = 4 << 20
	patience  = 5 * time.Second // for what ends the command
	seenAtAll = 10_000          // deliveries that are remembered: a repetition of one is not another message
)

// receiver answers the service, and hands on what it has verified.
type receiver struct {
	ctx       context.Context
	printer   *output.Printer
	flags     listenFlags
	environ   []string
	stderr    io.Writer
	note      func(format string, args ...any)
	directory *client.Directory
	path      string

	registered chan struct{} // closed when verifier is there
	verifier   *client.Verifier

	mu     sync.Mutex // one message at a time
	seen   map[string]bool
	count  int
	enough chan struct{}
	failed error
}

// begin gives the receiver its webhook: only now can it verify.
func (r *receiver) begin(w *client.Webhook) {
	keys := func(id string) (ed25519.PublicKey, error) { return r.directory.Key(id) }
	r.verifier, r.seen = &client.Verifier{Secret: w.Secret, Keys: keys, URL: w.URL}, map[string]bool{}
	close(r.registered)
}

// ServeHTTP answers one request.
func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	switch {
	case request.URL.Path != r.path:
		http.NotFound(w, request)
		return
	case request.Method == http.MethodOptions: // the handshake of "HTTP 1.1 Web Hooks for Event Delivery"
		w.Header().Set("Allow", "POST, OPTIONS")
		if origin := request.Header.Get("WebHook-Request-Origin"); origin != "" {
			w.Header().Set("WebHook-Allowed-Origin", origin)
			w.Header().Set("WebHook-Allowed-Rate", "*")
		}
		w.WriteHeader(http.StatusNoContent)
		return
	case request.Method != http.MethodPost:
		w.Header().Set("Allow", "POST, OPTIONS")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	select {
	case <-r.registered:
	case <-request.Context().Done():
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	w.WriteHeader(r.receive(request, body))
}

// receive verifies a message and hands it on. It gives the status of the answer.
func (r *receiver) receive(request *http.Request, body []byte) int {
	message, err := r.verifier.Verify(request)
	if err != nil {
		r.note("A message was refused: %v", err)
		if errors.Is(err, client.ErrSignature) {
			return http.StatusUnauthorized
		}
		return http.StatusServiceUnavailable // the keys could not be read: it comes again
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[message.WebhookID] {
		return http.StatusNoContent // its answer was lost
	}
	if r.flags.count > 0 && r.count >= r.flags.count {
		return http.StatusServiceUnavailable // the command ends
	}
	status := r.handOn(request, message, body)
	if status >= http.StatusMultipleChoices {
		return status
	}
	if len(r.seen) >= seenAtAll {
		clear(r.seen)
	}
	r.seen[message.WebhookID] = true
	if r.count++; r.count == r.flags.count {
		close(r.enough)
	}
	return status
}

// shown is a message as it is printed.
type shown struct {
	DeliveryID string          `json:"delivery_id"`
	EventID    string          `json:"event_id"`
	Name       string          `json:"event_name"`
	JobID      string          `json:"job_id,omitempty"`
	Time       time.Time       `json:"timestamp"`
	Sequence   int             `json:"seq,omitempty"`
	WorkKind   string          `json:"work_kind,omitempty"`
	Verified   []string        `json:"verified"`
	Status     int             `json:"forward_status,omitempty"` // of the answer to --forward
	Data       json.RawMessage `json:"data"`
}

var shownView = output.View{ID: "delivery_id"}

// handOn runs the command for a message, or forwards it, or neither, and prints it. It gives the status of the answer.
func (r *receiver) handOn(request *http.Request, m *client.WebhookMessage, body []byte) (status int) {
	status = http.StatusNoContent
	switch {
	case len(r.flags.command) > 0:
		if err := r.runCommand(m, body); err != nil {
			r.note("%s was not taken: %v", m.Name, err)
			return http.StatusInternalServerError
		}
		return status // the output is the command's
	case r.flags.forward != "":
		var err error
		if status, err = r.sendOn(request, body); err != nil {
			r.note("%s was not taken: %v", m.Name, err)
			return http.StatusBadGateway
		}
	}
	if err := r.print(m, status); err != nil {
		if r.failed == nil {
			r.failed = err
		}
		return http.StatusInternalServerError
	}
	return status
}

// notForwarded are the headers that are of the connection to this receiver.
var notForwarded = []string{"Connection", "Content-Length", "Keep-Alive", "Transfer-Encoding"}

// sendOn sends a message to the URL of --forward and gives the status of its answer.
func (r *receiver) sendOn(request *http.Request, body []byte) (status int, err error) {
	on, err := http.NewRequestWithContext(request.Context(), http.MethodPost, r.flags.forward, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	on.Header = request.Header.Clone()
	for _, name := range notForwarded {
		on.Header.Del(name)
	}
	answer, err := http.DefaultTransport.RoundTrip(on) // a redirection is an answer too
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

func (r *receiver) print(m *client.WebhookMessage, status int) error {
	one := shown{
		DeliveryID: m.WebhookID, EventID: m.EventID, Name: m.Name, JobID: m.JobID(), Time: m.Time, Sequence: m.Sequence, WorkKind: m.WorkKind,
		Verified: []string{"secret", "signature"}, Data: m.Data,
	}
	forwarded := ""
	if r.flags.forward != "" {
		one.Status, forwarded = status, fmt.Sprintf("  answered %d", status)
	}
	return r.printer.Each(shownView, one, func(value any) string {
		style := r.printer.Style
		state := term.State(m.Name, output.Text(output.At(value, "data.jobStatus")))
		return fmt.Sprintf("%s  %s  %-22s  %-36s  %s%s", style.Paint(term.Faint, m.Time.Local().Format("15:04:05.000")),
			style.Paint(term.Good, "verified"), term.Line(m.Name), term.Line(one.JobID), style.Paint(term.StateColor(state), term.Line(state)),
			forwarded)
	})
}

// runCommand runs the command for a message.
func (r *receiver) runCommand(m *client.WebhookMessage, body []byte) error {
	c := exec.CommandContext(r.ctx, r.flags.command[0], r.flags.command[1:]...) // as the caller asked for
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(body), term.Raw(r.printer.Out), term.Raw(r.stderr)
	c.Env = slices.Concat(r.environ, []string{
		"FORGERUN_EVENT=" + m.Name, "FORGERUN_EVENT_ID=" + m.EventID, "FORGERUN_JOB_ID=" + m.JobID(), "FORGERUN_WEBHOOK_ID=" + m.WebhookID,
	})
	return c.Run()
}

// finish ends the server once the last answer is on its way.
func (r *receiver) finish(server *http.Server) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), patience)
	defer cancel()
	_ = server.Shutdown(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// unregister deletes the webhook, also when the command was interrupted.
func unregister(ctx context.Context, api *client.Client, id string, note func(format string, args ...any)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := api.DeleteWebhook(ctx, id); err != nil {
		note("The webhook %s could not be deleted: %v", id, err)
	}
}
