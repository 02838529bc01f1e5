package deliveries

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/pg"
)

// DisableFailures is the default of WebhookLimits.DisableFailures.
const DisableFailures = 20

// WebhookLimits determine when a failing webhook is disabled. Both limits must be reached. The zero value means 20 failures and 10 minutes.
type WebhookLimits struct {
	DisableFailures int
	DisableAfter    time.Duration // minimum time since the first of these failures
}

func (l WebhookLimits) orDefault() WebhookLimits {
	if l == (WebhookLimits{}) {
		return WebhookLimits{DisableFailures: DisableFailures, DisableAfter: 10 * time.Minute}
	}
	return l
}

var (
	// ErrWebhookNotFound is returned for an unknown or deleted webhook, and for a webhook of another client.
	ErrWebhookNotFound = job.Errorf(job.CodeWebhookNotFound, "No webhook with this id was found.")

	errWebhookDisabled = job.Errorf(job.CodeConflict,
		"The webhook is disabled or was deleted, so it gets no deliveries. If it is disabled, enable it first.")
	errManyWebhooks = job.Errorf(job.CodeConflict, "This client has %d webhooks, which is the maximum. Delete one "+
		"first.", job.MaxWebhooks)
)

func scanWebhook(row pgx.CollectableRow) (w job.Webhook, err error) {
	var secrets secretScanner
	var disabled job.Disabled
	err = pg.ScanRow(row, &w.ID, &w.ClientID, &w.URL, &w.Events, &w.Description, &w.ContentMode,
		&secrets.current, &secrets.old, &secrets.until, &w.CreatedAt, &w.UpdatedAt, &disabled.At, &disabled.Reason, &w.Failures, &w.FailingFrom,
		&w.ProvenAt)
	w.Secrets = secrets.valid(time.Now())
	if !disabled.At.IsZero() {
		w.Disabled = &disabled
	}
	return w, err
}

type secretScanner struct {
	current []byte
	old     [][]byte
	until   []time.Time
}

// valid uses the local clock. A small error of this clock is harmless, because an old secret stays valid for a long time.
func (s secretScanner) valid(now time.Time) []job.SealedSecret {
	secrets := []job.SealedSecret{{Sealed: s.current}}
	for i, old := range s.old {
		if until := s.until[i]; until.After(now) {
			secrets = append(secrets, job.SealedSecret{Sealed: old, Until: &until})
		}
	}
	return secrets
}

// InsertWebhook stores an enabled webhook with its current secret. If w.ProvenAt is set, the webhook is stored as proven at the current
// time. Inserts of one client wait for each other in this process, because a wait in the database would hold a connection. InsertWebhook
// returns after the commit, but a call inside jobs.Store.Once returns before Once commits.
func (s *Store) InsertWebhook(ctx context.Context, w job.Webhook) (added job.Webhook, err error) {
	_, unlock, err := s.newHooks.Lock(ctx, w.ClientID)
	if err != nil {
		return job.Webhook{}, err
	}
	defer unlock()
	err = s.db.InTx(ctx, "webhook", func(ctx context.Context, tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, statement("lockClientsWebhooks"), w.ClientID.String()); err != nil {
			return err
		}
		var found bool
		added, found, err = pg.First(pg.RowsIn(ctx, tx, scanWebhook, statement("insertWebhook"), pg.UUID(w.ID), pg.UUID(w.ClientID),
			w.URL, w.Events, w.Description, string(w.ContentMode), w.Secrets[0].Sealed, w.ProvenAt != nil, job.MaxWebhooks))
		if err == nil && !found {
			err = errManyWebhooks
		}
		return err
	})
	return added, err
}

// Webhook reads a client's webhook.
func (s *Store) Webhook(ctx context.Context, client, id job.ID) (*job.Webhook, error) {
	return s.oneWebhook(ctx, statement("readWebhook"), pg.UUID(id), pg.UUID(client))
}

func (s *Store) oneWebhook(ctx context.Context, sql string, args ...any) (*job.Webhook, error) {
	w, err := pg.QueryOne(ctx, s.db, ErrWebhookNotFound, scanWebhook, sql, args...)
	if err != nil {
		return nil, err
	}
	return &w, nil
}

// Webhooks lists all of a client's webhooks, the newest first.
func (s *Store) Webhooks(ctx context.Context, client job.ID) ([]job.Webhook, error) {
	return pg.Query(ctx, s.db, scanWebhook, statement("listWebhooks"), pg.UUID(client))
}

// UpdateWebhook applies a patch. Disabling a disabled webhook keeps the earlier reason. Enabling the webhook or changing its URL resets
// the failures. A new URL counts as unproven unless p.Proven is true.
func (s *Store) UpdateWebhook(ctx context.Context, client, id job.ID, p job.WebhookPatch) (*job.Webhook, error) {
	var mode *string
	if p.ContentMode != nil {
		mode = pg.Nullable(string(*p.ContentMode))
	}
	return s.oneWebhook(ctx, statement("updateWebhook"), pg.UUID(id), pg.UUID(client),
		p.URL, p.Events, p.Description, mode, p.Enabled, p.Proven)
}

// DeleteWebhook deletes a webhook. FailOrphans ends the webhook's waiting deliveries. Other deliveries are removed with their jobs. Clean
// removes deliveries without a job.
func (s *Store) DeleteWebhook(ctx context.Context, client, id job.ID) error {
	_, err := s.oneWebhook(ctx, statement("deleteWebhook"), pg.UUID(id), pg.UUID(client))
	return err
}

// RotateWebhookSecret replaces a webhook's secret. At most three previous secrets stay valid, each for the time `overlap` after it was
// replaced. So a client that got no response can rotate the secret again, and receivers with an earlier secret still work.
func (s *Store) RotateWebhookSecret(ctx context.Context, client, id job.ID, sealed []byte, overlap time.Duration) (*job.Webhook, error) {
	return s.oneWebhook(ctx, statement("rotateSecret"), pg.UUID(id), pg.UUID(client), sealed, overlap)
}

// Subscribers returns the enabled webhooks of all clients.
func (s *Store) Subscribers(ctx context.Context) ([]job.EndpointKey, error) {
	return pg.Query(ctx, s.db, pgx.RowToStructByPos[job.EndpointKey], statement("subscribers"))
}

// ProvenURLs returns the URLs of a client's enabled webhooks with proven receivers.
func (s *Store) ProvenURLs(ctx context.Context, client job.ID) ([]string, error) {
	return pg.Query(ctx, s.db, pgx.RowTo[string], statement("provenURLs"), pg.UUID(client))
}

// SigningKeys returns the published keys, the oldest first.
func (s *Store) SigningKeys(ctx context.Context) ([]job.SigningKey, error) {
	return pg.Query(ctx, s.db, pgx.RowToStructByPos[job.SigningKey], statement("signingKeys"))
}

// AddSigningKey publishes a key. The first key signs at once. A later key signs after `delay`, so that receivers have time to fetch it.
// After the other keys stop signing, they stay published for the time `overlap`. All times are Postgres' times.
//
// With `onlyFirst`, AddSigningKey adds k only if no key is published, and retires no keys. Without `onlyFirst`, if k is already the current
// key, the call only retires the other keys.
func (s *Store) AddSigningKey(ctx context.Context, k job.SigningKey, onlyFirst bool, delay, overlap time.Duration) error {
	return s.db.InTx(ctx, "signing key", func(ctx context.Context, tx pgx.Tx) error {
		// Processes that start together take turns.
		if _, err := tx.Exec(ctx, `LOCK TABLE signing_keys IN SHARE ROW EXCLUSIVE MODE`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement("addSigningKey"), k.KID, k.Public, k.Sealed, delay, onlyFirst); err != nil || onlyFirst {
			return err
		}
		_, err := tx.Exec(ctx, statement("retireOtherKeys"), k.KID, overlap)
		return err
	})
}
