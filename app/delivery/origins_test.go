package delivery

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/app/apptest"
	"github.com/forgerun/forgerun/job"
)

// Webhooks at one origin share what one endpoint may take, however their URLs are
// written; those of another client, or at another port, do not.
func TestWebhooksAtOneOriginShareItsLimit(t *testing.T) {
	apptest.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		w := newSendingWorld(t, func(ctx context.Context, p job.ClaimedDelivery) job.Sent {
			at := originOf(p)
			key := at.client.String() + at.origin
			mu.Lock()
			now[key]++
			most[key] = max(most[key], now[key])
			mu.Unlock()
			defer func() {
				mu.Lock()
				defer mu.Unlock()
				now[key]--
			}()
			return answers(200, 100*time.Millisecond)(ctx, p)
		})
		urls := []string{"http://one.example/a", "http://ONE.example:80/b", "HTTP://one.example/?c", "http://one.example:81/"}
		for _, client := range []job.ID{apptest.ClientA, apptest.ClientB} {
			for i, url := range urls {
				endpoint := job.ID{client[0], client[15], 0xe, byte(i)}
				for range 30 {
					w.Store.deliver(client, endpoint, func(r *deliveryRow) { r.URL = url })
				}
			}
		}
		w.hinting()
		w.wake(apptest.ClientA, apptest.ClientB)
		apptest.Pass(10 * time.Minute)
		require.Len(t, w.sender.begun(), 2*4*30)
		require.Len(t, most, 4, "two origins of two clients")
		for key, n := range most {
			require.LessOrEqual(t, n, 2, key) // a fifth of ten
		}
		w.worker.origins.mu.Lock()
		defer w.worker.origins.mu.Unlock()
		require.Empty(t, w.worker.origins.gates)
	})
}
