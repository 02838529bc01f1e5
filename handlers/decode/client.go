package decode

import (
	"cmp"

	"github.com/forgerun/forgerun/handlers/api"
	"github.com/forgerun/forgerun/job"
)

// Empty refuses a body that says anything. It may be missing or {}.
func Empty(body []byte) error { return public.read("EmptyRequest", orEmpty(body), &struct{}{}) }

// Key is a request for an API key.
type Key struct {
	Rotate bool
	Scope  job.Scope
}

// CreateKey reads the body of a request for a key, which may be missing.
func CreateKey(body []byte) (k Key, err error) {
	err = public.read("KeyRequest", orEmpty(body), &k, func(r *reader) {
		if k.Scope = cmp.Or(k.Scope, job.ScopeAll); k.Rotate && k.Scope != job.ScopeAll {
			r.invalidAt("/scope", "A key of a lesser scope replaces no other one; leave rotate out.")
		}
	})
	return k, err
}

// RevokeKey reads the body of a request that revokes a key.
func RevokeKey(body []byte) (keyID string, err error) {
	var sent api.RevokeRequest
	err = public.read("RevokeRequest", body, &sent)
	return sent.KeyID, err
}
