package proxy

import (
	"crypto/tls"
	"net/http"
)

var ExchangeOf = (&sessions{}).exchange

func TrustAny(p *Proxy) {
	p.forward.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
}
