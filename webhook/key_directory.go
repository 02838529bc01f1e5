package webhook

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"

	"github.com/go-jose/go-jose/v4"

	"github.com/forgerun/forgerun/job"
)

// Directory returns the public keys as a JSON Web Key Set (RFC 7517, RFC 8037).
func Directory(keys []job.SigningKey) ([]byte, error) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{
			Key: ed25519.PublicKey(k.Public), KeyID: k.KID, Algorithm: string(jose.EdDSA), Use: "sig",
		})
	}
	return json.Marshal(set)
}

// thumbprint returns a key's id: its JWK thumbprint with SHA-256 (RFC 7638).
func thumbprint(public ed25519.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}
