package proxy_test

import (
	"io"
	"net/http"
	"testing"
)

// BenchmarkProxy measures a read of a job through the proxy, recorded in a session. Compare it with the server alone.
func BenchmarkProxy(b *testing.B) {
	bench := newBench(b, "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"status": "Running"}`)
	}))
	bench.session("")
	for b.Loop() {
		bench.do("GET", "/operations/1", "")
	}
}
