package clients

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// CreateKey creates a client's first key or, if `rotate` is set, a key that replaces the current one. If a usable key exists and `rotate`
// is false, it returns that key without the secret. Clients can therefore repeat the request. A request for a key with a lesser scope
// always creates a key.
func (k *Service) CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error) {
	if caller.Anonymous() && (scope != job.ScopeAll || !k.cfg.OpenRegistration) {
		return job.IssuedKey{}, errNoCredentials
	}
	wanted := job.APIKey{IssuedBy: job.KeyCreated, Scope: scope}
	if rotate {
		wanted.IssuedBy = job.KeyRotated
	}
	return k.issueKey(ctx, "create_key", caller, client, wanted, func(r keyring) (existing *job.APIKey, err error) {
		switch {
		case caller.Anonymous() && (len(r.keys) > 0 || r.now.Sub(r.client.CreatedAt) > registrationWindow):
			return nil, errNoCredentials
		case !caller.Anonymous() && !rotate && scope == job.ScopeAll && len(r.full) > 0:
			current := slices.IndexFunc(r.full, func(key job.APIKey) bool { return key.ReplacedBy == "" })
			return &r.full[max(0, current)], nil
		}
		return nil, r.superseded(caller.KeyID)
	})
}

// RenewKey replaces the client's current key. The old key stays valid for the overlap, so that a client can renew again if the response
// was lost. An expired key can be renewed during renewWindow; see renewable.
func (k *Service) RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error) {
	if caller.Expired && caller.ClientID != client {
		return job.IssuedKey{}, errExpiredKey
	}
	wanted := job.APIKey{IssuedBy: job.KeyRenewed, Scope: job.ScopeAll}
	return k.issueKey(ctx, "renew_key", caller, client, wanted, func(r keyring) (*job.APIKey, error) {
		switch {
		case caller.Anonymous():
			return nil, errNoCredentials
		case caller.Expired:
			return nil, r.renewable(caller.KeyID)
		case len(r.full) == 0:
			return nil, job.Errorf(job.CodeConflict, "The client has no valid key to renew; create one instead.")
		}
		return nil, r.superseded(caller.KeyID)
	})
}

// RevokeKey revokes a key and its descendants: the keys that were created with this key, directly or indirectly. A thief may have created
// them. The caller's key and its descendants stay valid, unless the caller revokes its own key. Keys that are already revoked stay as they
// are.
func (k *Service) RevokeKey(ctx context.Context, caller job.Caller, client job.ID, keyID string) error {
	if caller.Anonymous() {
		return errNoCredentials
	}
	var revoked []job.APIKey
	err := k.changeKeys(ctx, caller, client, func(r keyring) (job.KeyChange, error) {
		if key, _ := r.find(keyID); key == nil {
			return job.KeyChange{}, job.Errorf(job.CodeRequestNotFound, "The client has no key with this id.")
		}
		if err := r.superseded(caller.KeyID); err != nil && caller.KeyID != keyID {
			return job.KeyChange{}, err
		}
		revoked = nil // storage may call this function again
		for _, key := range withDescendants(r.keys, keyID, caller.KeyID) {
			if key.RevokedAt == nil {
				key.RevokedAt = &r.now
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

// withDescendants returns a key and all keys that it created, directly or indirectly. It skips the key `spared` and its descendants,
// unless `spared` equals id.
func withDescendants(keys []job.APIKey, id, spared string) []job.APIKey {
	chosen := map[string]bool{id: true}
	var found []job.APIKey
	for _, key := range slices.Backward(keys) { // oldest first, so that each key comes before the keys that it created
		if key.ID == id || chosen[key.MadeBy] && key.ID != spared {
			chosen[key.ID] = true
			found = append(found, key)
		}
	}
	return found
}

func (k *Service) issueKey(ctx context.Context, action string, caller job.Caller, client job.ID, wanted job.APIKey,
	rule func(keyring) (existing *job.APIKey, err error)) (job.IssuedKey, error) {
	var issued job.IssuedKey
	err := k.changeKeys(ctx, caller, client, func(r keyring) (job.KeyChange, error) {
		existing, err := rule(r)
		switch {
		case err != nil:
			return job.KeyChange{}, err
		case existing != nil:
			issued = job.IssuedKey{APIKey: *existing}
			return job.KeyChange{}, nil
		case wanted.Scope == job.ScopeAll && len(r.full) >= maxKeys || wanted.Scope != job.ScopeAll && r.scoped >= maxKeys:
			return job.KeyChange{}, job.Errorf(job.CodeConflict, "The client has %d valid keys of this kind; revoke one first.", maxKeys)
		}
		issued = job.IssuedKey{APIKey: wanted}
		issued.Secret, issued.ID = newAPIKey()
		issued.ClientID, issued.SecretHash, issued.MadeBy = client, hashAPIKey(issued.Secret), caller.KeyID
		issued.CreatedAt = r.now.Truncate(time.Microsecond)
		issued.ExpiresAt = issued.CreatedAt.Add(k.cfg.TTL)
		return job.KeyChange{New: &issued.APIKey, Changed: r.replaced(issued.APIKey)}, nil
	})
	if err != nil {
		return job.IssuedKey{}, err
	}
	app.DescribeKey(trace.SpanFromContext(ctx), client, issued.ID)
	k.logChange(ctx, "api key issued", action, client, slog.String("key_id", issued.ID), slog.Bool("new", issued.Secret != ""))
	return issued, nil
}

// changeKeys stores the change that `decide` returns. If the caller may not change the client, the error is the same as for an unknown
// client. After the commit, changeKeys removes the changed keys from this process's cache. Storage notifies other processes.
func (k *Service) changeKeys(ctx context.Context, caller job.Caller, client job.ID, decide func(keyring) (job.KeyChange, error)) error {
	if !caller.Admin && !caller.Anonymous() && caller.ClientID != client {
		return errNoClient
	}
	var done job.KeyChange
	err := k.store.ChangeKeys(ctx, client, func(c job.Client, now time.Time, keys []job.APIKey) (change job.KeyChange, err error) {
		r := newKeyring(c, now, keys)
		switch {
		case c.ID.IsZero() && caller.Anonymous():
			return change, errNoCredentials // does not reveal which clients exist
		case c.ID.IsZero():
			return change, errNoClient
		}
		if err = r.ended(caller); err == nil {
			change, err = decide(r)
			done = change
		}
		return change, err
	})
	if err == nil {
		app.AfterCommit(ctx, func() {
			for _, key := range done.Changed {
				k.memory.forget(key.ID)
			}
		})
	}
	return err
}
