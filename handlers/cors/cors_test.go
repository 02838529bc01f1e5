package cors

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/handlers/docs"
)

func TestOrigins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list             string
		allowed, refused []string
	}{
		{"", nil, []string{"", "null", "https://app.example.com", "http://localhost"}},
		{" https://App.Example.com:443 ,, http://[::1]:80", []string{"https://app.example.com", "http://[::1]"},
			[]string{"", "null", "http://app.example.com", "https://app.example.com.evil.example", "https://a.app.example.com",
				"https://app.example.com:8443", "http://localhost"}},
		{"http://localhost:5173", []string{"http://localhost:5173"}, []string{"http://localhost", "http://localhost:5174"}},
		{"loopback", []string{"http://localhost:5173", "https://localhost", "http://127.0.0.1:8080", "http://[::1]:3000", "http://app.localhost",
			"http://LocalHost:80"},
			[]string{"", "null", "file://", "localhost", "http://localhost.example.com", "http://127.0.0.1.example.com", "http://notlocalhost",
				"http://localhost:5173@example.com", "http://192.0.2.1", "http://0.0.0.0", "ftp://localhost", "http://[::2]"}},
		{"loopback,https://app.example.com", []string{"http://localhost", "https://app.example.com"}, []string{"https://example.com"}},
		{"*", []string{"null", "https://anybody.example", ""}, nil},
	} {
		origins, err := Parse(c.list)
		require.NoError(t, err, c.list)
		require.Equal(t, c.allowed == nil, origins.None(), c.list)
		require.Equal(t, c.list == "*", origins.Any(), c.list)
		for _, origin := range c.allowed {
			require.True(t, origins.Allows(origin), "%q of %q", origin, c.list)
		}
		for _, origin := range c.refused {
			require.False(t, origins.Allows(origin), "%q of %q", origin, c.list)
		}
	}
	for _, bad := range []string{
		"app.example.com", "https://app.example.com/", "https://app.example.com/x", "https://", "ftp://app.example.com", "null",
		"localhost", "*,loopback", "https://a.example,*", "https://*.example.com", "https://me:secret@example.com",
		"https://a.example?", "https://a.example#x", "https://a.example:",
		"https://a.example:0", "https://a.example:65536", "https://b\u00fccher.example",
		"https://a.example;https://b.example",
		"http://[fe80::1%25eth0]", "//a.example",
	} {
		_, err := Parse(bad)
		require.Error(t, err, bad)
	}
}

func TestHeadersMatchDocument(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths      map[string]map[string]yaml.Node
		Components struct {
			Parameters map[string]struct{ Name, In string }
			Headers    map[string]yaml.Node
		}
	}
	require.NoError(t, yaml.Unmarshal(docs.OpenAPI, &document))
	// Some documented headers belong to deliveries, so pages never send them. Browsers set User-Agent themselves.
	ofDeliveries := []string{"ce-", "webhook-", "Signature", "Content-", "WebHook-", "User-Agent"}
	for _, p := range document.Components.Parameters {
		ofDelivery := slices.ContainsFunc(ofDeliveries, func(prefix string) bool { return strings.HasPrefix(p.Name, prefix) })
		if p.In == "header" && !ofDelivery {
			require.Contains(t, RequestHeaders, p.Name)
		}
	}
	// Pages can always read the first six headers (CORS-safelisted), and do not need the others.
	unneeded := []string{"Cache-Control", "Content-Language", "Content-Length", "Content-Type", "Expires", "Pragma",
		"X-Content-Type-Options", "X-Accel-Buffering", "Content-Encoding", "Vary", "Content-Security-Policy"}
	for name := range document.Components.Headers {
		switch name {
		case "EventsCacheControl", "PageCacheControl", "KeysCacheControl", "ResultCacheControl", "RequiredRetryAfter", "RequiredETag",
			"StrongETag", "ProblemLanguage", "PageSecurityPolicy", "OptionalReprDigest", "OptionalAcceptRanges":
			continue // these components are not named like their header
		}
		require.NotEqual(t, slices.Contains(unneeded, name), slices.Contains(ExposedHeaders, name), name)
	}
	for path, item := range document.Paths {
		for method := range item {
			if method != "parameters" && method[:2] != "x-" {
				require.Contains(t, Methods, strings.ToUpper(method), path)
			}
		}
	}
}
