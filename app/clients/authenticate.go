package clients

import (
	"context"
	"crypto/subtle"

	"github.com/forgerun/forgerun/job"
)

var (
	errNoCredentials = job.Errorf(job.CodeInvalidCredentials, "This request needs an API key: Authorization: Bearer frk_...")
	errBadKey        = job.Errorf(job.CodeInvalidCredentials, "The API key is not valid. Send the complete key: Authorization: Bearer frk_...")
	errExpiredKey    = job.Errorf(job.CodeTokenExpired, "The API key has expired and can no longer be renewed. "+
		"Use a newer key of this client, or ask the operator for one.")
	errRenewable  = job.Errorf(job.CodeTokenExpired, "The API key has expired. Renew it with POST /v1/clients/{client_id}/keys/renew.")
	errSuperseded = job.Errorf(job.CodeForbidden, "A newer key of this client has been used, so the expired one can no longer be "+
		"renewed. Use the newer key, "+
		"or ask the operator for one.")
	errReplacedKey = job.Errorf(job.CodeForbidden, "This key was replaced, and a newer key of this client has been used, so this key can no "+
		"longer manage keys. "+
		"Use the newer key, or ask the operator.")
	errReader     = job.Errorf(job.CodeForbidden, "This is a read-only operator token. It works only at the admin address.")
	errRevokedKey = job.Errorf(job.CodeKeyDisabled, "The API key was revoked.")
	errNoClient   = job.Errorf(job.CodeClientNotFound, "No client with this id was found.")
	errAdminOnly  = job.Errorf(job.CodeForbidden, "Open registration is off on this server: only the operator can create clients.")
)

// Authenticate returns the caller that the credentials belong to. Without credentials, it returns an anonymous caller, or an error if
// registration is closed. It stores the first use of a key before it accepts the key. For an expired key, Authenticate returns an error
// together with a caller. With this caller, the client can only renew the key.
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
	case k.clock().Sub(key.ExpiresAt) < renewWindow:
		return caller, errRenewable
	}
	return caller, errExpiredKey
}

// use stores the first use of a key durably. From then on, no older key can be renewed.
func (k *Service) use(ctx context.Context, key *job.APIKey) error {
	if key.UsedAt != nil {
		return nil
	}
	exists, err, _ := k.uses.Do(key.ID, func() (any, error) {
		return k.store.UseKey(context.WithoutCancel(ctx), key.ID) // not canceled, because other requests with this key wait for this write
	})
	switch {
	case err != nil:
		return err
	case !exists.(bool):
		k.memory.forget(key.ID)
		return errBadKey
	}
	if known, ok, generation := k.memory.recall(key.ID); ok {
		now := k.clock()
		known.UsedAt = &now
		k.memory.remember(known, generation)
	}
	return nil
}

func sameSecret(a, b [32]byte) bool { return subtle.ConstantTimeCompare(a[:], b[:]) == 1 }

// Named returns the client and key of a credential without checking the secret. Use the result only for the log.
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
