package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"

	"github.com/forgerun/forgerun/job"
)

type handshakeError struct{ error }

func (e handshakeError) Unwrap() error { return e.error }

// classify returns the class of a connection error. `answered` is true if the first byte of a response arrived. net/http has no error
// type for most invalid responses, so SendBadAnswer is the default.
func classify(err error, answered bool) job.SendError {
	var (
		dns       *net.DNSError
		timeout   net.Error
		handshake handshakeError
		alert     tls.AlertError
		op        *net.OpError
	)
	switch {
	case errors.Is(err, errForbidden): // a name resolved to a forbidden address
		return job.SendDNS // same as an unknown name, so that clients do not learn internal names
	case errors.Is(err, context.Canceled):
		return job.SendInternal
	case errors.Is(err, context.DeadlineExceeded):
		return job.SendTimeout
	case errors.As(err, &dns):
		return job.SendDNS
	case errors.As(err, &timeout) && timeout.Timeout():
		return job.SendTimeout
	case errors.As(err, &handshake), errors.As(err, &alert):
		return job.SendTLS
	case errors.As(err, &op) && op.Op == "dial":
		return job.SendRefused
	case errors.As(err, &op) && op.Op == "remote error": // a TLS alert after the handshake
		return job.SendTLS
	case op != nil, !answered, slices.ContainsFunc(connectionLost, func(lost error) bool { return errors.Is(err, lost) }):
		return job.SendReset
	default:
		return job.SendBadAnswer
	}
}

var connectionLost = []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}

// classifyStatus returns the class of an HTTP status, "" for a success.
func classifyStatus(status int) job.SendError {
	switch {
	case status == http.StatusTooManyRequests:
		return job.SendRateLimited
	case status == http.StatusGone:
		return job.SendGone
	case status < 200 || 599 < status:
		return job.SendBadAnswer
	case status < 300:
		return ""
	case status < 400:
		return job.SendRedirect
	case status < 500:
		return job.SendClientError
	default:
		return job.SendServerError
	}
}

// maxReason limits the error text in a reason, in bytes. Receivers control some of the text.
const maxReason = 200

// reason describes a failure, with the receiver's host or address. It returns "" for a success or an internal error. It replaces a
// private address by the host of the URL, to hide private networks from clients.
func (s *Sender) reason(a *job.DeliveryAttempt, err error, target *url.URL, peer string) string {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" && dial.Addr != nil {
		peer = dial.Addr.String()
	}
	own := net.JoinHostPort(target.Hostname(), cmp.Or(target.Port(), map[string]string{"http": "80", "https": "443"}[target.Scheme]))
	if addr, invalid := netip.ParseAddrPort(peer); invalid != nil || s.cfg.Guard.public.SafeAddr(addr.Addr().Unmap()) != nil {
		peer = own
	}
	switch a.Error {
	case "", job.SendInternal:
		return ""
	case job.SendTimeout:
		return fmt.Sprintf("timeout after %v s from %s", s.cfg.Timeout.Seconds(), peer)
	case job.SendDNS: // the same text for unknown names and for names with private addresses
		return "no allowed address for " + target.Hostname()
	case job.SendTLS:
		if unverified := (*tls.CertificateVerificationError)(nil); errors.As(err, &unverified) {
			return "certificate of " + own + " refused: " + innermost(err)
		}
		return "TLS handshake with " + own + " failed: " + innermost(err)
	case job.SendRefused:
		if errors.Is(err, syscall.ECONNREFUSED) {
			return "connection refused by " + peer
		}
		return "no connection to " + peer + ": " + innermost(err)
	case job.SendReset:
		return "connection to " + peer + " lost: " + innermost(err)
	}
	if err != nil {
		return "invalid response from " + peer + ": " + innermost(err)
	}
	return fmt.Sprintf("HTTP %d from %s", a.Status, peer)
}

// innermost returns the text of the error that caused err. The wrapping errors can contain addresses of this server.
func innermost(err error) string {
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		err = cause
	}
	text := err.Error()
	return plainText(text[:min(len(text), maxReason)])
}
