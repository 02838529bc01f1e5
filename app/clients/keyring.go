package clients

import (
	"slices"
	"time"

	"github.com/forgerun/forgerun/job"
)

// keyring is a client and its keys, read while the client's row is locked. Each key with full scope replaces the one before it. Keys with
// a lesser scope are independent of other keys.
type keyring struct {
	client job.Client
	now    time.Time
	keys   []job.APIKey // newest first
	full   []job.APIKey
	scoped int // number of valid keys with a lesser scope
}

func newKeyring(c job.Client, now time.Time, keys []job.APIKey) keyring {
	r := keyring{client: c, now: now, keys: keys}
	for _, key := range keys {
		switch {
		case key.RevokedAt != nil || !now.Before(key.ExpiresAt):
		case key.Scope == job.ScopeAll:
			r.full = append(r.full, key)
		default:
			r.scoped++
		}
	}
	return r
}

// find returns a key, and the full-scope keys that are newer.
func (r keyring) find(id string) (key *job.APIKey, newer []job.APIKey) {
	for i := range r.keys {
		switch {
		case r.keys[i].ID == id:
			return &r.keys[i], newer
		case r.keys[i].Scope == job.ScopeAll:
			newer = append(newer, r.keys[i])
		}
	}
	return nil, nil
}

func anyUsed(keys []job.APIKey) bool {
	return slices.ContainsFunc(keys, func(key job.APIKey) bool { return key.UsedAt != nil })
}

// ended returns an error if the caller's key expired or was revoked during the request. Without this check, a delayed request could
// create a key after the revocation. If the key had expired before the request, `ended` returns no error, because the method `renewable`
// checks such keys.
func (r keyring) ended(caller job.Caller) error {
	key, _ := r.find(caller.KeyID)
	switch {
	case caller.KeyID == "":
	case key == nil:
		return errBadKey
	case key.RevokedAt != nil:
		return errRevokedKey
	case !caller.Expired && !r.now.Before(key.ExpiresAt):
		return errRenewable
	}
	return nil
}

// superseded returns an error if the key was replaced and a newer key was used. In this case the old key may be stolen. Until a newer key
// is used, the old key is accepted, because the response with the newer key may have been lost.
func (r keyring) superseded(id string) error {
	if key, newer := r.find(id); key != nil && key.ReplacedBy != "" && anyUsed(newer) {
		return errReplacedKey
	}
	return nil
}

// renewable returns an error if an expired key cannot be renewed. A key cannot be renewed after renewWindow, after a rotation, or after a
// newer full-scope key was used.
func (r keyring) renewable(id string) error {
	key, newer := r.find(id)
	switch {
	case r.now.Sub(key.ExpiresAt) >= renewWindow,
		slices.ContainsFunc(newer, func(key job.APIKey) bool { return key.IssuedBy == job.KeyRotated }):
		return errExpiredKey
	case anyUsed(newer):
		return errSuperseded
	}
	return nil
}

// replaced returns the client's full-scope keys, marked as replaced by the key `by`. Each key expires after `overlap`, or earlier if its
// expiry was earlier. Keys that were already replaced are left out.
func (r keyring) replaced(by job.APIKey) (changed []job.APIKey) {
	if by.Scope != job.ScopeAll {
		return nil
	}
	for _, old := range r.full {
		if old.ReplacedBy != "" {
			continue
		}
		old.ReplacedBy = by.ID
		if end := r.now.Add(overlap); end.Before(old.ExpiresAt) {
			old.ExpiresAt = end
		}
		changed = append(changed, old)
	}
	return changed
}
