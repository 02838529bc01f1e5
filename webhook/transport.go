package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

const (
	maxIdle         = 500
	maxIdlePerHost  = 50
	idleTimeout     = 60 * time.Second
	pingTimeout     = 15 * time.Second // HTTP/2: idle time before a ping is sent, and also the time limit of the ping
	maxResponseHead = 64 << 10         // bytes; sum of the headers of all 1xx responses and of the final response

	// Receive buffers of HTTP/2, in bytes.
	maxStreamBuffer = 64 << 10
	maxConnBuffer   = 1 << 20
)

// connector connects to receivers. The guard checks each address before it is dialed. A connector uses no proxy, and limits the header
// size of responses.
type connector struct {
	dialer    *net.Dialer
	tls       *tls.Config
	timeout   time.Duration // of a TLS handshake
	transport *http.Transport
}

func newConnector(guard *Guard, timeout time.Duration, roots *x509.CertPool) *connector {
	c := &connector{
		// net/http may continue to dial after a request has timed out, so dialing has its own timeout.
		dialer:  &net.Dialer{Timeout: timeout, Control: guard.control},
		tls:     &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, NextProtos: []string{"h2", "http/1.1"}},
		timeout: timeout,
	}
	c.transport = &http.Transport{
		DialContext:       c.dialer.DialContext,
		DialTLSContext:    c.dialTLS,
		ForceAttemptHTTP2: true,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: pingTimeout, PingTimeout: pingTimeout,
			MaxReceiveBufferPerStream: maxStreamBuffer, MaxReceiveBufferPerConnection: maxConnBuffer,
		},
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHead,
	}
	return c
}

func (c *connector) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	plain, err := c.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	config := c.tls.Clone()
	config.ServerName = host
	conn := tls.Client(plain, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return nil, handshakeError{err}
	}
	return conn, nil
}

func userAgent(version string) string { return "ForgeRun/" + cmp.Or(version, "dev") }
