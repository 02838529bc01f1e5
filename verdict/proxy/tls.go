package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/verdict/fault"
)

const day = 24 * time.Hour

// secure is how the proxy listens with TLS.
type secure struct {
	next  atomic.Pointer[fault.TLS] // what is wrong with the next connection; nil: nothing
	certs map[fault.TLS]*tls.Config // "": nothing is wrong
}

// UseTLS has the proxy listen with TLS, as localhost and as another host, and gives in PEM the certificate authority that clients must
// trust. Its key is in memory alone.
func (p *Proxy) UseTLS(host string) (authority []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "ForgeRun proxy"},
		NotBefore: now.Add(-30 * day), NotAfter: now.Add(365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, err
	}
	s := &secure{certs: map[fault.TLS]*tls.Config{}}
	for n, wrong := range []fault.TLS{"", fault.TLSExpired, fault.TLSWrongHost} {
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(now.UnixNano() + int64(n) + 1), Subject: pkix.Name{CommonName: "ForgeRun proxy, listening"},
			NotBefore: ca.NotBefore, NotAfter: ca.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
			DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		}
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else if host != "" {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
		switch wrong {
		case fault.TLSExpired:
			leaf.NotAfter = now.Add(-day)
		case fault.TLSWrongHost:
			leaf.DNSNames, leaf.IPAddresses = []string{"another-host.invalid"}, nil
		}
		signed, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
		if err != nil {
			return nil, err
		}
		s.certs[wrong] = &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
			Certificates: []tls.Certificate{{Certificate: [][]byte{signed}, PrivateKey: key}},
		}
	}
	s.certs[fault.TLSHandshake] = s.certs[""].Clone()
	s.certs[fault.TLSHandshake].MaxVersion = tls.VersionTLS12
	s.certs[fault.TLSHandshake].CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256} // for which the key is none
	p.tls = s
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// config is that of the listener: each connection has the one that is its turn.
func (s *secure) config() *tls.Config {
	c := s.certs[""].Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if wrong := s.next.Swap(nil); wrong != nil {
			return s.certs[*wrong], nil
		}
		return nil, nil // as it is
	}
	return c
}
