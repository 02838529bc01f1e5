package webhook

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job/testbed"
)

// BenchmarkSend sends signed deliveries to a receiver on the same machine.
func BenchmarkSend(b *testing.B) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	b.Cleanup(receiver.Close)
	s := newSender(b, SenderConfig{Guard: NewGuard(true), Timeout: 10 * time.Second})
	p := sampleParcel(b)
	p.Target.URL = receiver.URL
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			require.Empty(b, s.Send(b.Context(), p).Attempt.Error)
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "deliveries/s")
}

// BenchmarkSign renders and signs a delivery, and does not send it.
func BenchmarkSign(b *testing.B) {
	s := newSender(b, SenderConfig{Guard: NewGuard(false), Timeout: time.Second})
	p := sampleParcel(b)
	target, wrong := s.cfg.Guard.parse("https://example.com/hook")
	require.Empty(b, wrong)
	b.ReportAllocs()
	for b.Loop() {
		_, err := s.request(b.Context(), p, target, time.Now(), testbed.Effect{})
		require.NoError(b, err)
	}
}
