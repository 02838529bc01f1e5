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

type secure struct {
	next  atomic.Pointer[fault.TLS] // fault of the next connection; may be nil
	certs map[fault.TLS]*tls.Config // configuration for each fault; "": no fault
}

// authority is a certificate authority. Its key exists only in memory.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	der  []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "ForgeRun proxy"},
		NotBefore: now.Add(-30 * day), NotAfter: now.Add(365 * day),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	return &authority{key, cert, der}, err
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der})
}

func (a *authority) sign(until time.Time, hosts ...string) (*tls.Config, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "ForgeRun proxy, listening"}, NotBefore: a.cert.NotBefore, NotAfter: until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else if host != "" {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	signed, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		Certificates: []tls.Certificate{{Certificate: [][]byte{signed}, PrivateKey: a.key}},
	}, nil
}

// UseTLS makes the proxy listen with TLS, with a certificate for localhost and another host. It returns a CA certificate in PEM, which
// clients must trust.
func (p *Proxy) UseTLS(host string) ([]byte, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	s := &secure{certs: map[fault.TLS]*tls.Config{}}
	ours := []string{"localhost", "127.0.0.1", "::1", host}
	for wrong, leaf := range map[fault.TLS]struct {
		until time.Time
		hosts []string
	}{
		"":                 {ca.cert.NotAfter, ours},
		fault.TLSExpired:   {time.Now().Add(-day), ours},
		fault.TLSWrongHost: {ca.cert.NotAfter, []string{"another-host.invalid"}},
	} {
		if s.certs[wrong], err = ca.sign(leaf.until, leaf.hosts...); err != nil {
			return nil, err
		}
	}
	s.certs[fault.TLSHandshake] = s.certs[""].Clone()
	s.certs[fault.TLSHandshake].MaxVersion = tls.VersionTLS12
	s.certs[fault.TLSHandshake].CipherSuites = []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256} // needs an RSA key, so the handshake fails
	p.tls = s
	return ca.pem(), nil
}

// A fault in s.next applies only to the next connection.
func (s *secure) config() *tls.Config {
	c := s.certs[""].Clone()
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if wrong := s.next.Swap(nil); wrong != nil {
			return s.certs[*wrong], nil
		}
		return nil, nil // keep the configuration c
	}
	return c
}
