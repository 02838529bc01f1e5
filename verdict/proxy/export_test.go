package proxy

import (
	"crypto/tls"
	"net/http"
)

// ExchangeOf returns the record of a request.
var ExchangeOf = (&sessions{}).exchange

// TrustAny makes a proxy accept any certificate of its target.
func TrustAny(p *Proxy) {
	p.forward.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}
