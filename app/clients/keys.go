package clients

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
)

// keyring is what a rule decides by, under the lock of the client.
type keyring struct {
	client job.Client
	now    time.Time
	all    []job.APIKey // newest first
	usable []job.APIKey // the current one first
}

// CreateKey makes a client's first key, or with rotate a new one that replaces
// the current one. Otherwise, if there is a usable key, it answers with that
// key's metadata and no secret: repeating the request is safe.
func (k *Service) CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool) (job.IssuedKey, error) {
	by := job.KeyCreated
	if rotate {
		by = job.KeyRotated
	}
	return k.change(ctx, "create_key", by, caller, client, func(r keyring) (*job.APIKey, error) {
		if caller.Anonymous() {
			if !k.cfg.OpenRegistration || len(r.all) > 0 || r.now.Sub(r.client.CreatedAt) > k.cfg.RegistrationWindow {
				return nil, errNoCredentials
			}
			return nil, nil
		}
		if len(r.usable) > 0 && !rotate {
			return &r.usable[0], nil
		}
		return nil, nil
	})
}

// RenewKey replaces the client's current key by a new one. The old one stays
// valid for the overlap, so a lost answer can be made up for by renewing again;
// and it can be renewed for RenewWindow after its end, see renewable.
func (k *Service) RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error) {
	if caller.Expired && caller.ClientID != client {
		return job.IssuedKey{}, errExpiredKey
	}
	return k.change(ctx, "renew_key", job.KeyRenewed, caller, client, func(r keyring) (*job.APIKey, error) {
		switch {
		case caller.Anonymous():
			return nil, errNoCredentials
		case caller.Expired:
			return nil, k.renewable(caller.KeyID, r)
		case len(r.usable) == 0:
			return nil, job.Errorf(job.CodeConflict, "The client has no valid key to renew; create one instead.")
		}
		return nil, nil
	})
}

// renewable says why an expired key cannot be renewed; nil if it can be. Every
// newer key of the client is a successor: one that a rotation made has ended all
// older ones, and the first use of one shows that the client has it.
func (k *Service) renewable(id string, r keyring) error {
	at := slices.IndexFunc(r.all, func(key job.APIKey) bool { return key.ID == id })
	if at < 0 {
		return errBadKey // removed meanwhile
	}
	key, used := r.all[at], false
	switch {
	case key.RevokedAt != nil:
		return errRevokedKey
	case r.now.Sub(key.ExpiresAt) >= k.cfg.RenewWindow:
		return errExpiredKey
	}
	for _, newer := range r.all[:at] {
		if newer.IssuedBy != job.KeyCreated && newer.IssuedBy != job.KeyRenewed {
			return errExpiredKey
		}
		used = used || newer.UsedAt != nil
	}
	if used {
		return errSuperseded
	}
	return nil
}

// change decides under the lock of the client: rule answers with the key to
// hand out as it is, or nil to issue a new one in place of the usable ones.
func (k *Service) change(ctx context.Context, action string, by job.KeyIssue, caller job.Caller, client job.ID,
	rule func(keyring) (*job.APIKey, error)) (job.IssuedKey, error) {
	if err := authorize(caller, client); err != nil {
		return job.IssuedKey{}, err
	}
	var issued job.IssuedKey
	err := k.store.ChangeKeys(ctx, client, func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		switch {
		case c.ID.IsZero() && caller.Anonymous():
			return job.KeyChange{}, errNoCredentials // which clients exist is nobody's business
		case c.ID.IsZero():
			return job.KeyChange{}, errNoClient
		}
		ring := keyring{c, now, keys, usableKeys(keys, now)}
		existing, err := rule(ring)
		switch {
		case err != nil:
			return job.KeyChange{}, err
		case existing != nil:
			issued = job.IssuedKey{APIKey: *existing}
			return job.KeyChange{}, nil
		case len(ring.usable) >= maxKeys:
			return job.KeyChange{}, job.Errorf(job.CodeConflict, "The client has %d valid keys; revoke one first.", len(ring.usable))
		}
		var change job.KeyChange
		issued, change = k.issue(ring, by)
		return change, nil
	})
	if err != nil {
		return job.IssuedKey{}, err
	}
	app.DescribeKey(trace.SpanFromContext(ctx), client, issued.ID)
	k.logChange(ctx, "api key issued", action, client, slog.String("key_id", issued.ID), slog.Bool("new", issued.Secret != ""))
	return issued, nil
}

// issue makes a new key that takes over from the usable ones: they stay valid
// for the overlap at most.
func (k *Service) issue(r keyring, by job.KeyIssue) (job.IssuedKey, job.KeyChange) {
	secret, id := newAPIKey()
	created := r.now.Truncate(time.Microsecond)
	key := job.APIKey{
		ID: id, ClientID: r.client.ID, SecretHash: hashAPIKey(secret), CreatedAt: created, ExpiresAt: created.Add(k.cfg.TTL), IssuedBy: by,
	}
	change := job.KeyChange{New: &key}
	for _, old := range r.usable {
		if old.ReplacedBy != "" {
			continue // its end is fixed already
		}
		old.ReplacedBy = id
		if end := r.now.Add(k.cfg.Overlap); end.Before(old.ExpiresAt) {
			old.ExpiresAt = end
		}
		change.Changed = append(change.Changed, old)
	}
	return job.IssuedKey{APIKey: key, Secret: secret}, change
}

// RevokeKey ends a key at once. Revoking a revoked key changes nothing.
func (k *Service) RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error {
	if caller.Anonymous() {
		return errNoCredentials
	}
	if err := authorize(caller, client); err != nil {
		return err
	}
	revoked := false
	err := k.store.ChangeKeys(ctx, client, func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		if c.ID.IsZero() {
			return job.KeyChange{}, errNoClient
		}
		for _, key := range keys {
			if key.ID != keyID {
				continue
			}
			if key.RevokedAt != nil {
				return job.KeyChange{}, nil
			}
			key.RevokedAt, revoked = &now, true
			return job.KeyChange{Changed: []job.APIKey{key}}, nil
		}
		return job.KeyChange{}, job.Errorf(job.CodeRequestNotFound, "The client has no key with this id.")
	})
	if err != nil {
		return err
	}
	app.DescribeKey(trace.SpanFromContext(ctx), client, keyID)
	app.AfterCommit(ctx, func() { k.forget(keyID) })
	k.logChange(ctx, "api key revoked", "revoke_key", client, slog.String("key_id", keyID), slog.Bool("new", revoked))
	return nil
}

// logChange logs what was committed, with the request that asked for it.
func (k *Service) logChange(ctx context.Context, message, action string, client job.ID, more ...slog.Attr) {
	app.AfterCommit(ctx, func() {
		attrs := []slog.Attr{
			slog.String("action", action), slog.String("request_id", telemetry.RequestOf(ctx)), slog.String("client_id", client.String()),
		}
		k.log.LogAttrs(ctx, slog.LevelInfo, message, append(attrs, more...)...)
	})
}
