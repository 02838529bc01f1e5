package handlers

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/forgerun/forgerun/handlers/decode"
)

// The bodies of a submission: a usual one, and one with all that costs.
const shortBody = `{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL"}`

const benchBody = `{"type":"EXECUTE","work_kind":"PAYLOAD_SMALL","params":{"order":4711,"tags":["a","b"],` +
	`"note":"something to carry"},"idempotency_key":"8e03978e-40d5-43e8-bc93-6894a57f9324"}`

// BenchmarkDecodeSubmit is the decoding of a body, and the hashing of one with an
// idempotency key.
func BenchmarkDecodeSubmit(b *testing.B) {
	for name, text := range map[string]string{"short": shortBody, "keyed": benchBody} {
		b.Run(name, func(b *testing.B) {
			body := []byte(text)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := decode.Job(body, "", decode.Limits{MaxPayload: 256 << 10}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSubmitHandler is a whole submission but for network and use case:
// routing, authentication, limits, decoding, answer, metrics and access log.
func BenchmarkSubmitHandler(b *testing.B) {
	for name, text := range map[string]string{"short": shortBody, "keyed": benchBody} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, func(_ *Config, d *Deps) { d.Logger, d.Clock = slog.New(slog.NewJSONHandler(io.Discard, nil)), time.Now })
			handler := w.server.app.Handler()
			var c fasthttp.RequestCtx
			c.Init(&fasthttp.Request{}, nil, nil)
			c.Request.Header.SetMethod("POST")
			c.Request.SetRequestURI("/v1/jobs")
			c.Request.Header.Set("Authorization", "Bearer "+goodKey)
			c.Request.Header.SetContentType("application/json")
			c.Request.SetBodyString(text)
			b.ReportAllocs()
			for b.Loop() {
				c.Response.Reset()
				handler(&c)
				if c.Response.StatusCode() != 202 {
					b.Fatal(c.Response.String())
				}
			}
		})
	}
}
