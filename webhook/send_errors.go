package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"syscall"

	"github.com/forgerun/forgerun/job"
)

// handshakeError is a TLS handshake that failed, for whatever reason.
type handshakeError struct{ error }

func (e handshakeError) Unwrap() error { return e.error }

// classify gives the class of a connection's error; answered: some of a response was received.
// Most errors of net/http about bad responses have no type: they are the last cases.
func classify(err error, answered bool) job.SendError {
	var (
		dns       *net.DNSError
		timeout   net.Error
		handshake handshakeError
		alert     tls.AlertError
		op        *net.OpError
	)
	switch {
	case errors.Is(err, errForbidden): // of a name: the addresses that a URL spells out are refused before
		return job.SendDNS // as an unknown name, so that clients do not learn which inner names exist
	case errors.Is(err, context.Canceled): // by the caller
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

// classifyStatus gives the class of an HTTP status, "" for a success.
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
