// Package webhook renders, signs and sends deliveries, and classifies the responses. It also manages the secrets and keys for signatures.
// Package delivery schedules retries.
package webhook

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/verdict/fault"
)

// SenderConfig configures a Sender.
type SenderConfig struct {
	PublicURL string // base URL of links and of CloudEvents "source", without a trailing slash
	Origin    string // value of Webhook-Request-Origin; "" omits the header
	Version   string // program version for User-Agent
	Timeout   time.Duration
	Guard     *Guard
	RootCAs   *x509.CertPool // nil: certificates of the system
	Log       *slog.Logger   // for errors of class SendInternal
}

// Sender sends deliveries, each as one HTTP POST. It follows no redirects and uses no proxy. It is safe for concurrent use.
type Sender struct {
	*connector

	cfg   SenderConfig
	links job.Links
	keys  *Keyring
}

// NewSender makes a sender that signs with keys.
func NewSender(cfg SenderConfig, keys *Keyring) *Sender {
	links := job.Links{PublicURL: cfg.PublicURL, Absolute: true, Language: job.Languages[0]} // receivers send no Accept-Language
	return &Sender{connector: newConnector(cfg.Guard, cfg.Timeout, cfg.RootCAs), cfg: cfg, links: links, keys: keys}
}

// Close closes idle connections.
func (s *Sender) Close() { s.transport.CloseIdleConnections() }

// Send sends a delivery and returns the outcome. It takes at most SenderConfig.Timeout. It logs internal errors, and returns the class
// SendInternal for them. If ctx is canceled, ignore the outcome.
func (s *Sender) Send(ctx context.Context, p job.ClaimedDelivery) job.Sent {
	return s.send(ctx, p, fault.Effect{})
}

func (s *Sender) send(ctx context.Context, p job.ClaimedDelivery, e fault.Effect) (sent job.Sent) {
	start := time.Now()
	defer func() {
		if v := recover(); v != nil { // a panic in one delivery must not stop the others
			sent = s.internal(ctx, p, fmt.Errorf("panic: %v\n%s", v, debug.Stack()))
		}
		sent.Attempt.StartedAt, sent.Attempt.Duration = start.UTC(), time.Since(start)
	}()
	target, wrong := s.cfg.Guard.parse(p.Target.URL)
	if wrong != "" {
		return job.Sent{Attempt: job.DeliveryAttempt{Error: job.SendForbidden, Reason: p.Target.URL + " is not called. " + wrong}}
	}
	limited, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	var answered atomic.Bool
	var peer atomic.Value
	traced := httptrace.WithClientTrace(limited, &httptrace.ClientTrace{
		GotConn:              func(c httptrace.GotConnInfo) { peer.Store(c.Conn.RemoteAddr().String()) },
		GotFirstResponseByte: func() { answered.Store(true) },
	})
	request, err := s.request(traced, p, target, start, e)
	if err != nil {
		return s.internal(ctx, p, err)
	}
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		sent.Attempt.Error = classify(err, answered.Load())
	} else {
		defer response.Body.Close()
		sent, err = read(response, start)
	}
	address, _ := peer.Load().(string)
	sent.Attempt.Reason = s.reason(&sent.Attempt, err, target, address)
	return sent
}

func (s *Sender) internal(ctx context.Context, p job.ClaimedDelivery, err error) job.Sent {
	attrs := []slog.Attr{
		slog.String("action", "deliver"), slog.String("delivery_id", p.ID.String()), slog.String("client_id", p.ClientID.String()),
		slog.String("error_code", string(job.SendInternal)), slog.String("error_message", err.Error()),
	}
	if !p.Occurrence.JobID.IsZero() {
		attrs = append(attrs, slog.String("job_id", p.Occurrence.JobID.String()))
	}
	s.cfg.Log.LogAttrs(ctx, slog.LevelError, "delivery not sent", attrs...)
	return job.Sent{Attempt: job.DeliveryAttempt{Error: job.SendInternal}}
}

// request makes the signed request. The attempts of a delivery differ only in timestamps, signatures and traceparent.
func (s *Sender) request(ctx context.Context, p job.ClaimedDelivery, target *url.URL, now time.Time, e fault.Effect) (
	*http.Request, error,
) {
	m, err := render(s.links, &p.Occurrence, p.Target.ContentMode, e)
	if err != nil {
		return nil, err
	}
	m.body = pad(m.body, e.Padding)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, plainURL(target), bytes.NewReader(m.body))
	if err != nil {
		return nil, err
	}
	digest, err := contentDigest(m.body)
	if err != nil {
		return nil, err
	}
	for _, a := range m.attributes {
		r.Header.Set(a.name, a.value)
	}
	r.Header.Set("User-Agent", userAgent(s.cfg.Version))
	if s.cfg.Origin != "" {
		r.Header.Set(headerRequestOrigin, s.cfg.Origin)
	}
	r.Header.Set("Content-Type", m.contentType)
	r.Header.Set("Content-Digest", digest)
	if m.language != "" {
		r.Header.Set("Content-Language", m.language)
	}
	r.Header.Set("Webhook-Id", p.ID.String())
	if parent := traceparent(ctx, p); parent != "" {
		r.Header.Set("Traceparent", parent) // not signed, because proxies may change this header
	}
	// This header makes net/http retry a POST if the receiver has closed an idle connection. net/http does not send a header without values.
	r.Header["Idempotency-Key"] = []string{}

	secrets, err := s.reveal(p, now)
	if err != nil {
		return nil, err
	}
	key, err := s.keys.current(now)
	if err != nil {
		return nil, err
	}
	by, err := signing{now, r.URL, key, secrets}.changed(e)
	if err != nil {
		return nil, err
	}
	if err := by.sign(r, m); err != nil {
		return nil, err
	}
	tamper(r, m.body, e.Tamper)
	return r, nil
}

// traceparent returns the traceparent of this attempt's span (W3C Trace Context). Without a span, it returns the event's traceparent.
func traceparent(ctx context.Context, p job.ClaimedDelivery) string {
	if own := telemetry.Traceparent(ctx); own != "" {
		return own
	}
	// p.TraceParent comes from a client, and may be invalid.
	var format propagation.TraceContext
	const name = "traceparent"
	sent := propagation.MapCarrier{}
	format.Inject(format.Extract(context.Background(), propagation.MapCarrier{name: p.TraceParent}), sent)
	return sent[name]
}

// reveal decrypts the valid secrets of a webhook.
func (s *Sender) reveal(p job.ClaimedDelivery, now time.Time) ([]string, error) {
	var secrets []string
	for _, sealed := range p.Target.Secrets {
		if sealed.Until != nil && !now.Before(*sealed.Until) {
			continue
		}
		secret, err := s.keys.vault.Secret(p.WebhookID, sealed.Sealed)
		switch {
		case err != nil && sealed.Until == nil:
			return nil, err
		case err != nil:
			continue // an old secret that the current master key cannot decrypt
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// plainURL returns the URL as a receiver derives it from a request: lower-case host, no default port, escaped path and query.
func plainURL(u *url.URL) string {
	host := strings.ToLower(u.Host)
	if port := map[string]string{"http": ":80", "https": ":443"}[u.Scheme]; u.Port() == port[1:] {
		host = strings.TrimSuffix(host, port)
	}
	plain := u.Scheme + "://" + host + encoded(u.EscapedPath())
	if u.RawQuery != "" || u.ForceQuery {
		plain += "?" + encoded(u.RawQuery)
	}
	return plain
}

// encoded escapes the characters that are invalid in a path or query (RFC 3986, sections 3.3 and 3.4).
func encoded(text string) string {
	var out strings.Builder
	for i := range len(text) {
		c := text[i]
		if c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]) || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' ||
			'0' <= c && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@/?", c) >= 0 {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "%%%02X", c)
		}
	}
	return out.String()
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }
