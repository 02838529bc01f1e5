package webhook

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
)

func TestHTTP2(t *testing.T) {
	t.Parallel()
	var proto atomic.Int32
	r := newReceiver(t, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, func(_ http.ResponseWriter, q *http.Request) {
		proto.Store(int32(q.ProtoMajor))
	})
	s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: 20 * time.Second, RootCAs: rootsOf(r.Server)})
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			require.Empty(t, sendTo(t, s, r.URL+"/hook").Attempt.Error)
		})
	}
	wg.Wait()
	require.EqualValues(t, 2, proto.Load())
	for _, c := range r.all() {
		must(c.verify(publicKey(t, s), time.Now()))(t)
	}
}

func TestHostileReceiversWithHTTP2(t *testing.T) {
	t.Parallel()
	endless := func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 16<<10)); err != nil {
				return
			}
		}
	}
	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		timeout time.Duration
		want    job.SendError
		body    int
	}{
		"endless body": {endless, 30 * time.Second, "", job.MaxStoredBody},
		"hangs":        {func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() }, time.Second, job.SendTimeout, 0},
		"large head": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("A", strings.Repeat("x", 2*maxAnswerHead)) // the transport gives the connection up
		}, 30 * time.Second, job.SendReset, 0},
		"resets": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, 30 * time.Second, job.SendReset, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{}, 10)
			r := newReceiver(t, func(s *httptest.Server) { s.EnableHTTP2 = true; s.StartTLS() }, func(w http.ResponseWriter, q *http.Request) {
				defer func() { ended <- struct{}{} }()
				test.answer(w, q)
			})
			s := newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: test.timeout, RootCAs: rootsOf(r.Server)})
			a := sendTo(t, s, r.URL).Attempt
			require.Equal(t, test.want, a.Error)
			require.Len(t, a.Body, test.body)
			if test.want != job.SendTimeout { // which may come before the handler
				<-ended
			}
		})
	}
}
