package proxy

import (
	"crypto/tls"
	"net/http"
)

// ExchangeOf begins the record of a request.
var ExchangeOf = (&sessions{}).exchange

// TrustAny lets a proxy take any certificate of its target.
func TrustAny(p *Proxy) {
	p.forward.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}
