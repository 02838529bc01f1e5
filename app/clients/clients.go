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
	"golang.org/x/sync/singleflight"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/job"
)

// KeyStore is what clients and their keys need of storage.
type KeyStore interface {
	InsertClient(ctx context.Context, id job.ID) (job.Client, error)
	NameClient(ctx context.Context, id job.ID, name string) (exists bool, err error)
	Key(ctx context.Context, id string) (*job.APIKey, error)
	// UseKey records durably that a key was used, and reports whether it is there
	// still: keys of clients that were never used are removed some time.
	UseKey(ctx context.Context, id string) (exists bool, err error)
	ChangeKeys(ctx context.Context, client job.ID, decide func(c job.Client, now time.Time, keys []job.APIKey) (job.KeyChange, error)) error
	WatchKeys(ctx context.Context, changed func(id string), connected func(bool))
}

// Config of clients and their keys.
type Config struct {
	Operators          operators.Tokens
	OpenRegistration   bool          // anybody may create a client and its first key
	RegistrationWindow time.Duration // how long after a client's creation its first key may be created openly
	TTL                time.Duration // life of a key
	Overlap            time.Duration // how long a replaced key stays valid
	RenewWindow        time.Duration // how long after its end a key can be renewed; 0: not at all
}

// What the service sets of keys.
const (
	KeyOverlap  = 10 * time.Minute
	RenewWindow = 7 * 24 * time.Hour
)

// maxKeys bounds how many usable keys a client may have at once that may do all, and how many with a lesser scope: the one kind must not
// keep the other from being replaced.
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

	mu         sync.Mutex
	watching   bool
	generation uint64 // raised by every change, so that a look-up that was overtaken is not remembered
	known      map[string]job.APIKey
	watches    map[string]map[*func()]struct{} // by key

	uses singleflight.Group // recordings of first uses, by key
}

// New makes the service; WatchKeys keeps what it remembers current.
func New(cfg Config, store KeyStore, clock app.Clock, log *slog.Logger) *Service {
	if clock == nil {
		clock = time.Now
	}
	return &Service{cfg: cfg, store: store, clock: clock, log: log, known: map[string]job.APIKey{}, watches: map[string]map[*func()]struct{}{}}
}

// WatchKeys keeps what this process remembers of keys true, until ctx ends.
func (k *Service) WatchKeys(ctx context.Context) {
	k.store.WatchKeys(ctx, k.forget, k.connected)
}

// WatchKey calls changed when a key may have changed, in whichever process, until stop is called. changed must not block.
func (k *Service) WatchKey(id string, changed func()) (stop func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.watches[id] == nil {
		k.watches[id] = map[*func()]struct{}{}
	}
	k.watches[id][&changed] = struct{}{}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if delete(k.watches[id], &changed); len(k.watches[id]) == 0 {
			delete(k.watches, id)
		}
	}
}

func (k *Service) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	delete(k.known, id)
	for changed := range k.watches[id] {
		(*changed)()
	}
}

func (k *Service) connected(up bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	k.watching = up
	clear(k.known)
	if !up {
		return // storage may be away, and keys cannot be looked up
	}
	for id := range k.watches {
		for changed := range k.watches[id] {
			(*changed)() // it may have changed unnoticed
		}
	}
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

// Named returns the client and the id of the key that a credential names by its public part; zero if there is no such key. The
// credential may be wrong: the answer is for the log only.
func (k *Service) Named(ctx context.Context, credential string) job.Caller {
	id, ok := publicPart(credential)
	if !ok {
		return job.Caller{}
	}
	key, err := k.find(ctx, id)
	if err != nil || key == nil {
		return job.Caller{}
	}
	return job.Caller{ClientID: key.ClientID, KeyID: key.ID}
}

var (
	errNoCredentials = job.Errorf(job.CodeInvalidCredentials, "This request needs an API key: Authorization: Bearer frk_...")
	errBadKey        = job.Errorf(job.CodeInvalidCredentials, "The API key is not valid. Send it whole: Authorization: Bearer frk_...")
	errExpiredKey    = job.Errorf(job.CodeTokenExpired, "The API key has expired, and cannot be renewed any more. Use a newer key of this "+
		"client, or ask the operator for one.")
	errRenewable = job.Errorf(job.CodeTokenExpired, "The API key has expired. Renew it: POST /v1/clients/{client_id}/keys/renew "+
		"still takes it.")
	errSuperseded = job.Errorf(job.CodeForbidden, "A newer key of this client has been used, so that the expired one cannot be renewed any "+
		"more. Use the newer key, or ask the operator for one.")
	errReplacedKey = job.Errorf(job.CodeForbidden, "This key was replaced, and a newer key of this client has been used, so that it cannot "+
		"change keys any more. Use the newer key, or ask the operator.")
	errReader = job.Errorf(job.CodeForbidden, "This is the token of an operator who may read only, which is for the admin address. "+
		"Here it opens nothing.")
	errRevokedKey = job.Errorf(job.CodeKeyDisabled, "The API key was revoked.")
	errNoClient   = job.Errorf(job.CodeClientNotFound, "No client with this id was found.")
	errAdminOnly  = job.Errorf(job.CodeForbidden, "Open registration is off on this server: only the operator may create clients.")
)

// Authenticate says who presents the credentials (section 14). A caller without any
// is anonymous while registration is open, and refused otherwise, before anything is
// asked of storage. The first use of a
// key is recorded before it is accepted. With the error for an expired key that
// can still be renewed, the caller is Expired.
func (k *Service) Authenticate(ctx context.Context, bearer string) (job.Caller, error) {
	if bearer == "" {
		if k.cfg.OpenRegistration {
			return job.Caller{}, nil
		}
		return job.Caller{}, errNoCredentials
	}
	if operator, ok := k.cfg.Operators.Find(bearer); ok {
		if operator.ReadOnly {
			return job.Caller{}, errReader
		}
		return job.Caller{Admin: true, Operator: operator.Name}, nil
	}
	id, ok := parseAPIKey(bearer)
	if !ok {
		return job.Caller{}, errBadKey
	}
	key, err := k.find(ctx, id)
	if err != nil {
		return job.Caller{}, err
	}
	if key == nil || !sameSecret(hashAPIKey(bearer), key.SecretHash) {
		return job.Caller{}, errBadKey
	}
	caller := job.Caller{ClientID: key.ClientID, KeyID: key.ID, Scope: key.Scope}
	caller.Expired = key.RevokedAt == nil && !k.clock().Before(key.ExpiresAt)
	switch {
	case key.RevokedAt != nil:
		return caller, errRevokedKey
	case !caller.Expired:
		return caller, k.use(ctx, key)
	case k.clock().Sub(key.ExpiresAt) < k.cfg.RenewWindow:
		return caller, errRenewable
	}
	return caller, errExpiredKey
}

// use records the first use of a key: from then on no older one can be renewed,
// whatever happens to this process. Later uses cost nothing.
func (k *Service) use(ctx context.Context, key *job.APIKey) error {
	if key.UsedAt != nil {
		return nil
	}
	exists, err, _ := k.uses.Do(key.ID, func() (any, error) {
		return k.store.UseKey(context.WithoutCancel(ctx), key.ID) // others wait for it too
	})
	switch {
	case err != nil:
		return err
	case !exists.(bool):
		k.forget(key.ID)
		return errBadKey
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if known, ok := k.known[key.ID]; ok {
		now := k.clock()
		known.UsedAt = &now
		k.known[key.ID] = known
	}
	return nil
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
		k.logChange(ctx, "client created", "create_client", client.ID)
	}
	return client, err
}

// NameClient sets how operators call a client; "" removes the name.
func (k *Service) NameClient(ctx context.Context, client job.ID, name string) error {
	exists, err := k.store.NameClient(ctx, client, name)
	switch {
	case err != nil:
		return err
	case !exists:
		return errNoClient
	}
	k.logChange(ctx, "client named", "name_client", client)
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
