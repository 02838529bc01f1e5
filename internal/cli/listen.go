package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
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
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/term"
)

func (s *Shell) listen() *cobra.Command {
	c := s.cmd("listen [-- COMMAND [ARGUMENT...]]", "Receive events on this machine: register a webhook, then verify and print each message",
		func(flags *pflag.FlagSet) run {
			r := &receiver{seen: map[string]bool{}, enough: make(chan struct{})}
			flags.StringVar(&r.addr, "addr", "127.0.0.1:0", "`address` to listen on; port 0: any free port")
			flags.StringVar(&r.publicURL, "public-url", "", "`URL` at which the service reaches the receiver (default: the address of --addr)")
			flags.StringSliceVar(&r.events, "events", []string{"*"}, "`names` of the events to receive, such as job.failed, job.* or *")
			flags.StringVar(&r.forward, "forward", "", "`URL` to send each message to")
			flags.IntVar(&r.count, "count", 0, "stop after this many `messages`; 0: never")
			flags.BoolVar(&r.structured, "structured", false, "receive the whole CloudEvent in the body (content mode structured)")
			return using(func(c *call, api *client.Client) error {
				r.call = c
				return r.listen(api)
			})(flags)
		})
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) > 0 && c.ArgsLenAtDash() != 0 {
			return command.Usagef("put the command after --: forgerun webhooks listen -- %s", strings.Join(args, " "))
		}
		return nil
	}
	return c
}

// listen receives webhook messages until --count is reached or the context ends.
func (r *receiver) listen(api *client.Client) error {
	if target, err := url.Parse(r.forward); r.forward != "" && (err != nil || target.Host == "") {
		return command.Usagef("--forward %q must be a URL such as http://localhost:3000/hook", r.forward)
	}
	listener, err := net.Listen("tcp", r.addr)
	if err != nil {
		return command.Usagef("--addr: %w", err)
	}
	r.mu.Lock()
	path, mux := "/"+rand.Text(), http.NewServeMux()
	mux.Handle("POST "+path, r)
	mux.HandleFunc("OPTIONS "+path, handshake)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	base := strings.TrimRight(cmp.Or(r.publicURL, "http://"+listener.Addr().String()), "/")
	request := client.WebhookRequest{URL: base + path, Events: r.events, Description: "forgerun webhooks listen"}
	if r.structured {
		request.ContentMode = "structured"
	}
	webhook, err := api.CreateWebhook(r, request)
	if err != nil {
		if problem, ok := errors.AsType[*client.Problem](err); ok && problem.Status == http.StatusBadRequest && r.publicURL == "" {
			return fmt.Errorf("%w: if the service allows no private addresses, pass --public-url", err)
		}
		return err
	}
	defer r.unregister(api, webhook.WebhookID)
	directory := api.Directory()
	keys := func(id string) (ed25519.PublicKey, error) { return directory.Key(id) }
	r.verifier = &client.Verifier{Secret: webhook.Secret, Keys: keys, URL: webhook.URL}
	r.mu.Unlock()
	if r.forward != "" {
		r.notef("Messages forwarded to %s are signed with the secret %s", r.forward, webhook.Secret)
	}
	r.notef("Webhook %s receives %s at %s. Ctrl-C deletes it.", webhook.WebhookID, strings.Join(r.events, ", "), webhook.URL)
	select {
	case err := <-served:
		return err
	case <-r.enough: // Shutdown waits until the last response is sent; Close would not
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r), patience)
		defer cancel()
		return server.Shutdown(ctx)
	case <-r.Done():
		return nil
	}
}

const (
	maxBody    = 4 << 20
	patience   = 5 * time.Second // limit for finishing responses and deleting the webhook at the end
	remembered = 10_000          // number of deliveries kept to recognize duplicates
)

type receiver struct {
	*call
	addr, publicURL, forward string
	events                   []string
	count                    int // limit of messages to receive; 0: no limit
	structured               bool

	mu       sync.Mutex // guards the fields below; locked until verifier is set, so messages that arrive earlier wait
	verifier *client.Verifier
	seen     map[string]bool
	taken    int
	enough   chan struct{}
}

// handshake responds to the OPTIONS request of "HTTP 1.1 Web Hooks for Event Delivery".
func handshake(w http.ResponseWriter, request *http.Request) {
	if origin := request.Header.Get("WebHook-Request-Origin"); origin != "" {
		w.Header().Set("WebHook-Allowed-Origin", origin)
		w.Header().Set("WebHook-Allowed-Rate", "*")
	}
	w.Header().Set("Allow", "POST, OPTIONS")
	w.WriteHeader(http.StatusNoContent)
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, maxBody))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	w.WriteHeader(r.receive(request, body))
}

func (r *receiver) receive(request *http.Request, body []byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	message, err := r.verifier.Verify(request)
	if err != nil {
		r.notef("Refused a message: %v", err)
		if errors.Is(err, client.ErrSignature) {
			return http.StatusUnauthorized
		}
		return http.StatusServiceUnavailable // the public keys could not be read; the 503 makes the service send the message again
	}
	if r.seen[message.WebhookID] {
		return http.StatusNoContent // already handled; the service repeats a message if our response was lost
	}
	if r.count > 0 && r.taken >= r.count {
		return http.StatusServiceUnavailable // the command has received enough messages and ends
	}
	status := r.passOn(request, message, body)
	if status >= http.StatusMultipleChoices {
		return status
	}
	if len(r.seen) >= remembered {
		clear(r.seen)
	}
	r.seen[message.WebhookID] = true
	if r.taken++; r.taken == r.count {
		close(r.enough)
	}
	return status
}

// passOn runs the user's command with the message. Without a command, it prints the message. If --forward is set, it first sends the
// message to that address.
func (r *receiver) passOn(request *http.Request, m *client.WebhookMessage, body []byte) (status int) {
	if len(r.args) > 0 {
		if err := r.runCommand(m, body); err != nil {
			r.notef("Could not deliver %s: %v", m.Name, err)
			return http.StatusInternalServerError
		}
		return http.StatusNoContent
	}
	if r.forward != "" {
		var err error
		if status, err = r.sendOn(request, body); err != nil {
			r.notef("Could not deliver %s: %v", m.Name, err)
			return http.StatusBadGateway
		}
	}
	if err := r.print(m, status); err != nil {
		return http.StatusInternalServerError
	}
	return cmp.Or(status, http.StatusNoContent)
}

func (r *receiver) sendOn(request *http.Request, body []byte) (status int, err error) {
	on, err := http.NewRequestWithContext(request.Context(), http.MethodPost, r.forward, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	on.Header = request.Header.Clone()
	for _, name := range []string{"Connection", "Content-Length", "Keep-Alive", "Transfer-Encoding"} { // hop-by-hop headers and length
		on.Header.Del(name)
	}
	answer, err := http.DefaultTransport.RoundTrip(on) // RoundTrip, so that a redirect is returned and not followed
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

func (r *receiver) print(m *client.WebhookMessage, status int) error {
	shown := map[string]any{
		"delivery_id": m.WebhookID, "event_id": m.EventID, "event_name": m.Name, "job_id": m.JobID(), "timestamp": m.Time,
		"seq": m.Sequence, "work_kind": m.WorkKind, "verified": []string{"secret", "signature"}, "data": m.Data,
	}
	if status != 0 {
		shown["forward_status"] = status
	}
	return r.Each(shown, func(value any) string {
		state := term.State(m.Name, output.Text(output.At(value, "data.jobStatus")))
		line := fmt.Sprintf("%s  %s  %-22s  %-36s  %s", r.Style.Paint(term.Faint, m.Time.Local().Format("15:04:05.000")),
			r.Style.Paint(term.Good, "verified"), term.Line(m.Name), term.Line(m.JobID()),
			r.Style.Paint(term.StateColor(state), term.Line(state)))
		if status != 0 {
			line += fmt.Sprintf("  answered %d", status)
		}
		return line
	})
}

func (r *receiver) runCommand(m *client.WebhookMessage, body []byte) error {
	c := exec.CommandContext(r, r.args[0], r.args[1:]...)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(body), term.Raw(r.Out), term.Raw(r.Stderr)
	c.Env = slices.Concat(os.Environ(), []string{
		"FORGERUN_EVENT=" + m.Name, "FORGERUN_EVENT_ID=" + m.EventID, "FORGERUN_JOB_ID=" + m.JobID(), "FORGERUN_WEBHOOK_ID=" + m.WebhookID,
	})
	return c.Run()
}

// unregister deletes the webhook, even after Ctrl-C.
func (c *call) unregister(api *client.Client, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c), patience)
	defer cancel()
	if err := api.DeleteWebhook(ctx, id); err != nil {
		c.notef("The webhook %s could not be deleted: %v", id, err)
	}
}
