package proxy

import (
	"crypto/tls"
	"net/http"
)

// What is recorded of a request, and of Retry-After.
var (
	ExchangeOf   = (&sessions{}).exchange
	RetryAfterOf = retryAfter
)

// TrustAny lets a proxy take any certificate of its target.
func TrustAny(p *Proxy) {
	p.forward.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}
