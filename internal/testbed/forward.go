package testbed

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"software.sslmate.com/src/go-pkcs12"
)

// The trust store contains no secrets, so its password can be public.
const trustPassword = "changeit"

var rootFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem",
}

// forwarding holds the address and the certificates that a client needs to use a forward proxy.
type forwarding struct {
	proxy string
	dir   string
}

// newForwarding writes the certificates that clients must trust: this machine's roots and the proxy's authority.
func newForwarding(proxy string, authority []byte) (f *forwarding, err error) {
	f = &forwarding{proxy: proxy}
	if f.dir, err = os.MkdirTemp("", "forgerun-ca-"); err != nil {
		return nil, err
	}
	further, _ := os.ReadFile(os.Getenv("NODE_EXTRA_CA_CERTS")) //nolint:gosec // the user names the file
	all := slices.Concat(systemRoots(os.Getenv("SSL_CERT_FILE")), []byte("\n"), further, []byte("\n"), authority)
	store, err := trustStore(all)
	for name, content := range map[string][]byte{"all.pem": all, "all.p12": store} {
		err = errors.Join(err, os.WriteFile(filepath.Join(f.dir, name), content, 0o644))
	}
	if err != nil {
		_ = f.close()
		return nil, err
	}
	return f, nil
}

func systemRoots(own string) []byte {
	for _, file := range append([]string{own}, rootFiles...) {
		if text, err := os.ReadFile(file); err == nil { //nolint:gosec // the user names the file
			return text
		}
	}
	return nil // clients then trust only the proxy's authority
}

func trustStore(bundle []byte) ([]byte, error) {
	var all []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil { // skip a trusted certificate that Go cannot parse
			all = append(all, cert)
		}
	}
	return pkcs12.Modern.EncodeTrustStore(all, trustPassword)
}

// environment returns variables that make programs use and trust the proxy. They work for curl, Python, Go, Node (22.21, 24 and later),
// Ruby, Java and AWS tools.
func (f *forwarding) environment() (variables []string) {
	all := filepath.Join(f.dir, "all.pem")
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		variables = append(variables, name+"="+f.proxy, strings.ToLower(name)+"="+f.proxy)
	}
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		variables = append(variables, name+"="+all)
	}
	at, _ := url.Parse(f.proxy)
	host, port, _ := net.SplitHostPort(at.Host)
	java := os.Getenv("JAVA_TOOL_OPTIONS")
	for _, scheme := range []string{"http", "https"} {
		java += " -D" + scheme + ".proxyHost=" + host + " -D" + scheme + ".proxyPort=" + port
	}
	java += " -Dhttp.nonProxyHosts= -Djavax.net.ssl.trustStore=" + filepath.Join(f.dir, "all.p12") +
		" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=" + trustPassword
	return append(variables, "NO_PROXY=", "no_proxy=", "NODE_USE_ENV_PROXY=1", "JAVA_TOOL_OPTIONS="+strings.TrimSpace(java))
}

func (f *forwarding) exports() string {
	var b bytes.Buffer
	for _, variable := range f.environment() {
		name, value, _ := strings.Cut(variable, "=")
		b.WriteString("export " + name + "=" + quoteForShell(value) + "\n")
	}
	return b.String()
}

func (f *forwarding) close() error { return os.RemoveAll(f.dir) }
