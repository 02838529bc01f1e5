package webhook

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/internal/testkit"
	"github.com/forgerun/forgerun/job"
)

var (
	eventAt    = time.Date(2030, 1, 31, 12, 0, 5, 123_456_000, time.UTC)
	createdAt  = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	finishedAt = time.Date(2030, 1, 31, 12, 0, 5, 0, time.UTC)
	masterKey  = bytes.Repeat([]byte{7}, masterKeyBytes)
	webhookID  = job.ID{15: 1}
	deliveryID = job.ID{15: 2}
	jobID      = job.ID{15: 3}
	eventID    = job.ID{15: 4}
)

const publicURL = "https://forge.example"

func newVault(t testing.TB) *Vault {
	t.Helper()
	v, err := NewVault(masterKey)
	require.NoError(t, err)
	return v
}

func newSender(t testing.TB, cfg SenderConfig) *Sender {
	t.Helper()
	v := newVault(t)
	keys := NewKeyring(v, &memoryStore{})
	require.NoError(t, keys.Ensure(t.Context()))
	if cfg.PublicURL == "" {
		cfg.PublicURL = publicURL
	}
	cfg.Version, cfg.Log = "1.2.3", cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := NewSender(cfg, keys)
	t.Cleanup(s.Close)
	return s
}

func localSender(t testing.TB) *Sender {
	t.Helper()
	return newSender(t, SenderConfig{Guard: NewGuard(true), Timeout: testkit.Patience})
}

func sendTo(t testing.TB, s *Sender, url string) job.Sent {
	t.Helper()
	p := sampleParcel(t)
	p.Target.URL = url
	return s.Send(t.Context(), p)
}

func sampleParcel(t testing.TB) job.ClaimedDelivery {
	t.Helper()
	_, sealed, err := newVault(t).NewSecret(webhookID)
	require.NoError(t, err)
	return job.ClaimedDelivery{
		Delivery:   job.Delivery{ID: deliveryID, WebhookID: webhookID},
		Target:     job.Target{ContentMode: job.ContentBinary, Secrets: []job.SealedSecret{{Sealed: sealed}}},
		Occurrence: failedOccurrence(job.DependencyFailed),
	}
}

func failedOccurrence(r job.Reason) job.Occurrence {
	return job.Occurrence{
		Event: job.Event{ID: eventID, JobID: jobID, Seq: 4, Name: job.EventFailed, Prev: job.Running, Next: job.Failed, Attempt: 1,
			At: eventAt, Data: []byte(`{}`)},
		Origin: job.Origin{JobID: jobID, CreatedAt: createdAt, CorrelationID: "order-17", Language: "de", Scenario: job.Scenario{
			WorkKind: job.FailAfterRetryable, DurationMS: 5000, ExpectedOutcome: "FAILED",
		}},
		Ended: &job.Attempt{
			Number: 1, State: job.Failed, Outcome: job.OutcomeFailed, StartedAt: &createdAt, FinishedAt: &finishedAt,
			Failure: job.NewFailure(r, 1, job.Backoff{Base: time.Second, Max: time.Minute}),
		},
	}
}

type memoryStore struct {
	mu   sync.Mutex
	keys []job.SigningKey
	err  error
}

func (m *memoryStore) SigningKeys(context.Context) ([]job.SigningKey, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.keys), m.err
}

func (m *memoryStore) AddSigningKey(_ context.Context, k job.SigningKey, onlyFirst bool, delay, overlap time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if onlyFirst && len(m.keys) > 0 {
		return nil
	}
	now := time.Now()
	k.CreatedAt, k.SignsFrom = now, now.Add(delay)
	if len(m.keys) == 0 {
		k.SignsFrom = now
	}
	for i := range m.keys {
		if m.keys[i].RetiresAt == nil {
			at := k.SignsFrom.Add(overlap)
			m.keys[i].RetiresAt = &at
		}
	}
	m.keys = append(m.keys, k)
	return nil
}

func (m *memoryStore) shift(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.keys {
		k := &m.keys[i]
		k.SignsFrom = k.SignsFrom.Add(-d)
		if k.RetiresAt != nil {
			at := k.RetiresAt.Add(-d)
			k.RetiresAt = &at
		}
	}
}

var errStore = errors.New("the store is gone")

func newKey(t testing.TB) (ed25519.PrivateKey, string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	require.NoError(t, err)
	kid, err := thumbprint(public)
	require.NoError(t, err)
	return private, kid
}
