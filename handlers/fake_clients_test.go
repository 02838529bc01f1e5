package handlers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/job"
)

// fakeClients knows a few credentials, and records what it was asked.
type fakeClients struct {
	err  error                         // of everything but Authenticate, if set
	seen func(context.Context, string) // of each Authenticate, if set

	mu     sync.Mutex
	down   error               // of Authenticate, if set
	gone   map[string]struct{} // the credentials that were revoked
	told   sync.Map            // who watches keys
	caller job.Caller
	client job.ID
	rotate bool
	keyID  string
}

// revoke makes a key one that was revoked.
func (f *fakeClients) revoke(key string) { f.change(func() { f.gone = map[string]struct{}{key: {}} }) }

func (f *fakeClients) WatchKey(_ string, changed func()) (stop func()) {
	f.told.Store(&changed, nil)
	return func() { f.told.Delete(&changed) }
}

// tell says that keys have changed.
func (f *fakeClients) tell() {
	f.told.Range(func(changed, _ any) bool {
		(*changed.(*func()))()
		return true
	})
}

func (f *fakeClients) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *fakeClients) Authenticate(ctx context.Context, bearer string) (job.Caller, error) {
	if f.seen != nil {
		f.seen(ctx, bearer)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down != nil {
		return job.Caller{}, f.down
	}
	if _, gone := f.gone[bearer]; gone {
		bearer = "revoked"
	}
	switch {
	case len(bearer) > httpkit.MaxTokenBytes:
		return job.Caller{}, errors.New("nobody should look at this")
	case bearer == "":
		return job.Caller{}, nil
	case bearer == adminKey:
		return job.Caller{Admin: true, Operator: "ann"}, nil
	case slices.Contains([]string{"read", "submit"}, bearer):
		return job.Caller{ClientID: clientA, KeyID: bearer, Scope: job.Scope(bearer)}, nil
	case bearer == "renewable":
		return job.Caller{ClientID: clientA, KeyID: "old", Scope: job.ScopeAll, Expired: true},
			job.Errorf(job.CodeTokenExpired, "The key has expired.")
	case bearer == "expired":
		return job.Caller{}, job.Errorf(job.CodeTokenExpired, "The key has expired.")
	case bearer == "revoked":
		return job.Caller{ClientID: clientB, KeyID: "revoked-key"}, job.Errorf(job.CodeKeyDisabled, "The key was revoked.")
	case bearer == otherKey:
		return job.Caller{ClientID: clientB, KeyID: "other", Scope: job.ScopeAll}, nil
	case len(bearer) >= len(goodKey) && bearer[:len(goodKey)] == goodKey: // a test may mark it
		return job.Caller{ClientID: clientA, KeyID: "good", Scope: job.ScopeAll}, nil
	}
	return job.Caller{}, job.Errorf(job.CodeInvalidCredentials, "The key is not known.")
}

func (f *fakeClients) note(caller job.Caller, client job.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caller, f.client = caller, client
	if f.err == nil && client == httpkit.UnknownID {
		return job.Errorf(job.CodeClientNotFound, "There is no such client.")
	}
	return f.err
}

func (f *fakeClients) CreateClient(_ context.Context, caller job.Caller) (job.Client, error) {
	return job.Client{ID: clientA, CreatedAt: now}, f.note(caller, job.ID{})
}

func (f *fakeClients) CreateKey(_ context.Context, caller job.Caller, client job.ID, rotate bool, scope job.Scope) (job.IssuedKey, error) {
	f.change(func() { f.rotate = rotate })
	key := issued("frk_secret")
	key.Scope = scope
	return key, f.note(caller, client)
}

func (f *fakeClients) RenewKey(_ context.Context, caller job.Caller, client job.ID) (job.IssuedKey, error) {
	return issued(""), f.note(caller, client)
}

func (f *fakeClients) RevokeKey(_ context.Context, caller job.Caller, client job.ID, keyID string) error {
	f.change(func() { f.keyID = keyID })
	return f.note(caller, client)
}

func issued(secret string) job.IssuedKey {
	return job.IssuedKey{
		APIKey: job.APIKey{ID: "abc", Scope: job.ScopeAll, ClientID: clientA, CreatedAt: now, ExpiresAt: now.Add(time.Hour)}, Secret: secret,
	}
}
