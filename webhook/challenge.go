package webhook

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Headers of the handshake in "HTTP 1.1 Web Hooks for Event Delivery" (CloudEvents, http-webhook, section 4).
const (
	headerRequestOrigin = "Webhook-Request-Origin"
	headerAllowedOrigin = "Webhook-Allowed-Origin"
)

// challengeTimeout limits a handshake, from the DNS lookup to the header of the response.
const challengeTimeout = 5 * time.Second

// ChallengeConfig configures a Challenge.
type ChallengeConfig struct {
	Origin  string // result of the function Origin: host of this service's public URL
	Version string // program version for User-Agent
	Guard   *Guard
	Timeout time.Duration  // limit of one handshake; at most 5 s, which is also the default
	RootCAs *x509.CertPool // nil: certificates of the system
}

// Challenge asks a receiver, with an OPTIONS request, whether it accepts deliveries. It follows no redirects and reads only the header of
// the response. It is safe for concurrent use.
type Challenge struct {
	*connector

	cfg ChallengeConfig
}

// NewChallenge makes a challenge.
func NewChallenge(cfg ChallengeConfig) *Challenge {
	if cfg.Timeout <= 0 || cfg.Timeout > challengeTimeout {
		cfg.Timeout = challengeTimeout
	}
	c := &Challenge{connector: newConnector(cfg.Guard, cfg.Timeout, cfg.RootCAs), cfg: cfg}
	c.transport.DisableKeepAlives = true // do not reuse a connection: the response body is not read
	return c
}

// Ask sends the OPTIONS request to a URL. It returns "" if the receiver accepts deliveries, and otherwise describes the problem. Every
// failure without a response has the same text, so the text does not reveal internal names and ports.
func (c *Challenge) Ask(ctx context.Context, target string) (wrong string) {
	u, wrong := c.cfg.Guard.parse(target)
	if wrong != "" {
		return wrong
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodOptions, plainURL(u), nil)
	if err != nil {
		return notAURL
	}
	r.Header.Set("User-Agent", userAgent(c.cfg.Version))
	r.Header.Set(headerRequestOrigin, c.cfg.Origin)
	answer, err := c.transport.RoundTrip(r)
	if err != nil {
		return c.mustRespond("The receiver sent no valid HTTP response within " + c.cfg.Timeout.String() + ".")
	}
	_ = answer.Body.Close()
	return c.judge(answer)
}

func (c *Challenge) judge(answer *http.Response) string {
	if answer.StatusCode < 200 || 299 < answer.StatusCode {
		return c.mustRespond(fmt.Sprintf("The receiver answered OPTIONS with status %d.", answer.StatusCode))
	}
	allowed := answer.Header.Values(headerAllowedOrigin)
	switch {
	case len(allowed) == 0:
		return c.mustRespond("The receiver's response to OPTIONS has no WebHook-Allowed-Origin.")
	case len(allowed) > 1 || allowed[0] != "*" && !strings.EqualFold(allowed[0], c.cfg.Origin):
		return c.mustRespond("The receiver's response to OPTIONS allows only other origins.")
	}
	return ""
}

func (c *Challenge) mustRespond(missing string) string {
	return missing + " It must answer OPTIONS at this URL with a 2xx status and WebHook-Allowed-Origin: " + c.cfg.Origin + " (or *)."
}

// Origin returns the origin that the service sends in challenges: the host of its public URL.
func Origin(publicURL string) string {
	u, err := url.Parse(publicURL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Hostname())
}
