// Package clients holds the use cases of clients and their API keys (sections 7
// and 14): create, renew, revoke, authenticate.
package clients

import (
	"context"
	"crypto/subtle"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/job"
)

// KeyStore is what clients and their keys need of storage.
type KeyStore interface {
	InsertClient(ctx context.Context, id job.ID) (job.Client, error)
	Key(ctx context.Context, id string) (*job.APIKey, error)
	ChangeKeys(ctx context.Context, client job.ID, decide func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)) error
	WatchKeys(ctx context.Context, changed func(id string), connected func(bool))
}

// Config of clients and their keys.
type Config struct {
	AdminToken         string        // "" for none
	OpenRegistration   bool          // anybody may create a client and its first key
	RegistrationWindow time.Duration // how long after a client's creation its first key may be created openly
	TTL                time.Duration // life of a key
	Overlap            time.Duration // how long a replaced key stays valid
}

// maxKeys bounds how many usable keys a client may have at once.
const maxKeys = 10

// maxRemembered bounds the keys that a process remembers.
const maxRemembered = 10_000

// Service creates clients, and creates, changes and recognises their API keys. It
// remembers keys that it looked up, but only while storage reports every change.
type Service struct {
	cfg   Config
	store KeyStore
	clock app.Clock
	log   *slog.Logger

	admin [32]byte // hash of the operator's token

	mu         sync.Mutex
	watching   bool
	generation uint64 // raised by every change, so that a look-up that was overtaken is not remembered
	known      map[string]job.APIKey
}

// New makes the service; WatchKeys keeps what it remembers current.
func New(cfg Config, store KeyStore, clock app.Clock, log *slog.Logger) *Service {
	if clock == nil {
		clock = time.Now
	}
	return &Service{cfg: cfg, store: store, clock: clock, log: log, admin: hashAPIKey(cfg.AdminToken), known: map[string]job.APIKey{}}
}

// WatchKeys keeps what this process remembers of keys true, until ctx ends.
func (k *Service) WatchKeys(ctx context.Context) {
	k.store.WatchKeys(ctx, k.forget, k.connected)
}

func (k *Service) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	delete(k.known, id)
}

func (k *Service) connected(up bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	k.watching = up
	clear(k.known)
}

// find gives a key by its id, from memory or from storage; nil if there is none.
func (k *Service) find(ctx context.Context, id string) (*job.APIKey, error) {
	k.mu.Lock()
	found, ok := k.known[id]
	generation := k.generation
	k.mu.Unlock()
	if ok {
		return &found, nil
	}
	key, err := k.store.Key(ctx, id)
	if err != nil || key == nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watching && k.generation == generation {
		if len(k.known) >= maxRemembered {
			clear(k.known)
		}
		k.known[id] = *key
	}
	return key, nil
}

var (
	errNoCredentials = job.Errorf(job.CodeInvalidCredentials, "This request needs an API key: Authorization: Bearer frk_...")
	errBadKey        = job.Errorf(job.CodeInvalidCredentials, "The API key is not valid. Send it whole: Authorization: Bearer frk_...")
	errExpiredKey    = job.Errorf(job.CodeTokenExpired, "The API key has expired.")
	errRevokedKey    = job.Errorf(job.CodeKeyDisabled, "The API key was revoked.")
	errNoClient      = job.Errorf(job.CodeClientNotFound, "No client with this id was found.")
	errAdminOnly     = job.Errorf(job.CodeForbidden, "Open registration is off on this server: only the operator may create clients.")
)

// Authenticate says who presents the credentials (section 14).
func (k *Service) Authenticate(ctx context.Context, bearer string) (job.Caller, error) {
	if bearer == "" {
		return job.Caller{}, errNoCredentials
	}
	presented := hashAPIKey(bearer)
	if k.cfg.AdminToken != "" && sameSecret(presented, k.admin) {
		return job.Caller{Admin: true}, nil
	}
	id, ok := parseAPIKey(bearer)
	if !ok {
		return job.Caller{}, errBadKey
	}
	key, err := k.find(ctx, id)
	if err != nil {
		return job.Caller{}, err
	}
	if key == nil || !sameSecret(presented, key.SecretHash) {
		return job.Caller{}, errBadKey
	}
	caller := job.Caller{ClientID: key.ClientID, KeyID: key.ID}
	switch {
	case key.RevokedAt != nil:
		return caller, errRevokedKey
	case !k.clock().Before(key.ExpiresAt):
		return caller, errExpiredKey
	}
	return caller, nil
}

func sameSecret(a, b [32]byte) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

// CreateClient makes a new client (section 8).
func (k *Service) CreateClient(ctx context.Context, caller job.Caller) (job.Client, error) {
	if !caller.Admin && !k.cfg.OpenRegistration {
		if caller.Anonymous() {
			return job.Client{}, errNoCredentials
		}
		return job.Client{}, errAdminOnly
	}
	client, err := k.store.InsertClient(ctx, job.ID(uuid.New()))
	if err == nil {
		app.DescribeKey(trace.SpanFromContext(ctx), client.ID, "")
		k.log.InfoContext(ctx, "client created", "action", "create_client", "client_id", client.ID.String())
	}
	return client, err
}

// CreateKey makes a client's first key, or with rotate a new one that replaces
// the current one. Otherwise, if there is a usable key, it answers with that
// key's metadata and no secret: repeating the request is safe.
func (k *Service) CreateKey(ctx context.Context, caller job.Caller, client job.ID, rotate bool) (job.IssuedKey, error) {
	return k.change(ctx, caller, client, func(c job.Client, now time.Time, usable []job.APIKey, everHadKey bool) (*job.APIKey, error) {
		if caller.Anonymous() {
			if !k.cfg.OpenRegistration || everHadKey || now.Sub(c.CreatedAt) > k.cfg.RegistrationWindow {
				return nil, errNoCredentials
			}
			return nil, nil
		}
		if len(usable) > 0 && !rotate {
			return &usable[0], nil
		}
		return nil, nil
	})
}

// RenewKey replaces the client's current key by a new one. The old one stays
// valid for the overlap, so a lost answer can be made up for by renewing again.
func (k *Service) RenewKey(ctx context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error) {
	return k.change(ctx, caller, client, func(_ job.Client, _ time.Time, usable []job.APIKey, _ bool) (*job.APIKey, error) {
		switch {
		case caller.Anonymous():
			return nil, errNoCredentials
		case len(usable) == 0:
			return nil, job.Errorf(job.CodeConflict, "The client has no valid key to renew; create one instead.")
		}
		return nil, nil
	})
}

// change decides under the lock of the client: rule answers with the key to
// hand out as it is, or nil to issue a new one in place of the usable ones.
func (k *Service) change(ctx context.Context, caller job.Caller, client job.ID,
	rule func(c job.Client, now time.Time, usable []job.APIKey, everHadKey bool) (*job.APIKey, error)) (job.IssuedKey, error) {
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
		usable := usableKeys(keys, now)
		existing, err := rule(c, now, usable, len(keys) > 0)
		switch {
		case err != nil:
			return job.KeyChange{}, err
		case existing != nil:
			issued = job.IssuedKey{APIKey: *existing}
			return job.KeyChange{}, nil
		case len(usable) >= maxKeys:
			return job.KeyChange{}, job.Errorf(job.CodeConflict, "The client has %d valid keys; revoke one first.", len(usable))
		}
		var change job.KeyChange
		issued, change = k.issue(c.ID, now, usable)
		return change, nil
	})
	if err != nil {
		return job.IssuedKey{}, err
	}
	app.DescribeKey(trace.SpanFromContext(ctx), client, issued.ID)
	k.log.InfoContext(ctx, "api key issued", "action", "create_key", "client_id", client.String(), "key_id", issued.ID, "new",
		issued.Secret != "")
	return issued, nil
}

// issue makes a new key that takes over from the usable ones: they stay valid
// for the overlap at most.
func (k *Service) issue(client job.ID, now time.Time, usable []job.APIKey) (job.IssuedKey, job.KeyChange) {
	secret, id := newAPIKey()
	created := now.Truncate(time.Microsecond)
	key := job.APIKey{ID: id, ClientID: client, SecretHash: hashAPIKey(secret), CreatedAt: created, ExpiresAt: created.Add(k.cfg.TTL)}
	change := job.KeyChange{New: &key}
	for _, old := range usable {
		if old.ReplacedBy != "" {
			continue // its end is fixed already
		}
		old.ReplacedBy = id
		if end := now.Add(k.cfg.Overlap); end.Before(old.ExpiresAt) {
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
	k.forget(keyID)
	app.DescribeKey(trace.SpanFromContext(ctx), client, keyID)
	k.log.InfoContext(ctx, "api key revoked", "action", "revoke_key", "client_id", client.String(), "key_id", keyID, "new", revoked)
	return nil
}

// authorize lets the operator and the client itself at a client's keys. To
// everybody else the client does not exist.
func authorize(caller job.Caller, client job.ID) error {
	if caller.Admin || caller.Anonymous() || caller.ClientID == client {
		return nil
	}
	return errNoClient
}

// usableKeys gives the keys that authenticate now, the current one first.
func usableKeys(keys []job.APIKey, now time.Time) []job.APIKey {
	var current, replaced []job.APIKey
	for _, k := range keys {
		switch {
		case k.RevokedAt != nil || !now.Before(k.ExpiresAt):
		case k.ReplacedBy == "":
			current = append(current, k)
		default:
			replaced = append(replaced, k)
		}
	}
	return append(current, replaced...)
}
