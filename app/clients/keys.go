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

// ofAll gives the keys that may do all. They follow one another; those with a
// lesser scope stand beside them, replace none and are replaced by none.
func ofAll(keys []job.APIKey) (all []job.APIKey) {
	for _, key := range keys {
		if key.Scope == job.ScopeAll {
			all = append(all, key)
		}
	}
	return all
}

// CreateKey makes a client's first key, or with rotate a new one that replaces
// the current one. Otherwise, if there is a usable key, it answers with that
// key's metadata and no secret: repeating the request is safe. A key with a lesser
// scope than all is always a new one.
func (k *Service) CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error) {
	by := job.KeyCreated
	if rotate {
		by = job.KeyRotated
	}
	if caller.Anonymous() && (scope != job.ScopeAll || !k.cfg.OpenRegistration) {
		return job.IssuedKey{}, errNoCredentials
	}
	return k.change(ctx, "create_key", by, scope, caller, client, func(r keyring) (*job.APIKey, error) {
		if caller.Anonymous() {
			if len(r.all) > 0 || r.now.Sub(r.client.CreatedAt) > k.cfg.RegistrationWindow {
				return nil, errNoCredentials
			}
			return nil, nil
		}
		if usable := ofAll(r.usable); len(usable) > 0 && !rotate && scope == job.ScopeAll {
			return &usable[0], nil
		}
		return nil, superseded(caller, r.all)
	})
}

// RenewKey replaces the client's current key by a new one. The old one stays
// valid for the overlap, so a lost answer can be made up for by renewing again;
// and it can be renewed for RenewWindow after its end, see renewable.
func (k *Service) RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error) {
	if caller.Expired && caller.ClientID != client {
		return job.IssuedKey{}, errExpiredKey
	}
	return k.change(ctx, "renew_key", job.KeyRenewed, job.ScopeAll, caller, client, func(r keyring) (*job.APIKey, error) {
		switch {
		case caller.Anonymous():
			return nil, errNoCredentials
		case caller.Expired:
			return nil, k.renewable(caller.KeyID, r)
		case len(ofAll(r.usable)) == 0:
			return nil, job.Errorf(job.CodeConflict, "The client has no valid key to renew; create one instead.")
		}
		return nil, superseded(caller, r.all)
	})
}

// ended refuses a caller whose key has ended since the request began: a request that is kept pending must not make a key
// that outlives the revocation. A key that had expired before is for the rule to judge.
func ended(caller job.Caller, keys []job.APIKey, now time.Time) error {
	if caller.KeyID == "" {
		return nil
	}
	at := slices.IndexFunc(keys, func(key job.APIKey) bool { return key.ID == caller.KeyID })
	switch {
	case at < 0:
		return errBadKey
	case keys[at].RevokedAt != nil:
		return errRevokedKey
	case !caller.Expired && !now.Before(keys[at].ExpiresAt):
		return errRenewable
	}
	return nil
}

// superseded refuses to let a replaced key change the keys of its client once a
// newer one was used: who still holds it then may not be the owner. Until then it
// can mend a lost answer.
func superseded(caller job.Caller, all []job.APIKey) error {
	at := slices.IndexFunc(all, func(key job.APIKey) bool { return key.ID == caller.KeyID })
	if at < 0 || all[at].ReplacedBy == "" {
		return nil
	}
	if slices.ContainsFunc(ofAll(all[:at]), func(newer job.APIKey) bool { return newer.UsedAt != nil }) {
		return errReplacedKey
	}
	return nil
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
	for _, newer := range ofAll(r.all[:at]) {
		if newer.IssuedBy == job.KeyRotated {
			return errExpiredKey
		}
		used = used || newer.UsedAt != nil
	}
	if used {
		return errSuperseded
	}
	return nil
}

// changeKeys changes keys under the lock of their client. This process uses none as it was after the commit; others are told.
func (k *Service) changeKeys(ctx context.Context, client job.ID,
	rule func(job.Client, time.Time, []job.APIKey) (job.KeyChange, error)) error {
	var done job.KeyChange
	err := k.store.ChangeKeys(ctx, client, func(c job.Client, now time.Time, keys []job.APIKey) (change job.KeyChange, err error) {
		change, err = rule(c, now, keys)
		done = change
		return change, err
	})
	if err == nil {
		app.AfterCommit(ctx, func() {
			for _, key := range done.Changed {
				k.forget(key.ID)
			}
		})
	}
	return err
}

// change decides under the lock of the client: rule answers with the key to
// hand out as it is, or nil to issue a new one in place of the usable ones.
func (k *Service) change(ctx context.Context, action string, by job.KeyIssue, scope job.Scope, caller job.Caller, client job.ID,
	rule func(keyring) (*job.APIKey, error)) (job.IssuedKey, error) {
	if err := authorize(caller, client); err != nil {
		return job.IssuedKey{}, err
	}
	var issued job.IssuedKey
	err := k.changeKeys(ctx, client, func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		switch {
		case c.ID.IsZero() && caller.Anonymous():
			return job.KeyChange{}, errNoCredentials // does not reveal which clients exist
		case c.ID.IsZero():
			return job.KeyChange{}, errNoClient
		}
		if err := ended(caller, keys, now); err != nil {
			return job.KeyChange{}, err
		}
		ring := keyring{c, now, keys, usableKeys(keys, now)}
		existing, err := rule(ring)
		switch {
		case err != nil:
			return job.KeyChange{}, err
		case existing != nil:
			issued = job.IssuedKey{APIKey: *existing}
			return job.KeyChange{}, nil
		}
		if n := len(ofAll(ring.usable)); scope == job.ScopeAll && n >= maxKeys || scope != job.ScopeAll && len(ring.usable)-n >= maxKeys {
			return job.KeyChange{}, job.Errorf(job.CodeConflict, "The client has %d valid keys of this kind; revoke one first.", maxKeys)
		}
		var change job.KeyChange
		issued, change = k.issue(ring, by, scope, caller)
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
func (k *Service) issue(r keyring, by job.KeyIssue, scope job.Scope, caller job.Caller) (job.IssuedKey, job.KeyChange) {
	secret, id := newAPIKey()
	created := r.now.Truncate(time.Microsecond)
	key := job.APIKey{
		ID: id, ClientID: r.client.ID, SecretHash: hashAPIKey(secret), CreatedAt: created, ExpiresAt: created.Add(k.cfg.TTL), IssuedBy: by,
		MadeBy: caller.KeyID, Scope: scope,
	}
	change := job.KeyChange{New: &key}
	if scope != job.ScopeAll {
		return job.IssuedKey{APIKey: key, Secret: secret}, change
	}
	for _, old := range ofAll(r.usable) {
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

// RevokeKey ends a key at once, and with it the keys that it made, since a thief
// may have made them; the key that asks for it is spared, and what that one
// made, unless it names itself. Revoking a revoked key changes nothing else.
func (k *Service) RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error {
	if caller.Anonymous() {
		return errNoCredentials
	}
	if err := authorize(caller, client); err != nil {
		return err
	}
	var revoked []job.APIKey
	err := k.changeKeys(ctx, client, func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error) {
		if c.ID.IsZero() {
			return job.KeyChange{}, errNoClient
		}
		if err := ended(caller, keys, now); err != nil {
			return job.KeyChange{}, err
		}
		if !slices.ContainsFunc(keys, func(key job.APIKey) bool { return key.ID == keyID }) {
			return job.KeyChange{}, job.Errorf(job.CodeRequestNotFound, "The client has no key with this id.")
		}
		if err := superseded(caller, keys); err != nil && caller.KeyID != keyID {
			return job.KeyChange{}, err
		}
		revoked = nil // storage may ask again
		for _, key := range withMade(keys, keyID, caller.KeyID) {
			if key.RevokedAt == nil {
				key.RevokedAt = &now
				revoked = append(revoked, key)
			}
		}
		return job.KeyChange{Changed: revoked}, nil
	})
	if err != nil {
		return err
	}
	app.DescribeKey(trace.SpanFromContext(ctx), client, keyID)
	k.logChange(ctx, "api key revoked", "revoke_key", client, slog.String("key_id", keyID), slog.Bool("new", len(revoked) > 0),
		slog.Int("keys", len(revoked)))
	return nil
}

// withMade gives a key and those that were made with it, and with those in turn.
// It leaves spared out, and what only that one made, unless it is the key.
func withMade(keys []job.APIKey, id, spared string) []job.APIKey {
	chosen := map[string]bool{id: true}
	var found []job.APIKey
	for _, key := range slices.Backward(keys) { // the oldest first: a key is made by an older one
		if key.ID == id || chosen[key.MadeBy] && key.ID != spared {
			chosen[key.ID] = true
			found = append(found, key)
		}
	}
	return found
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
