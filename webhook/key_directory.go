package webhook

import (
	"crypto"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"

	"github.com/go-jose/go-jose/v4"

	"github.com/forgerun/forgerun/job"
)

// Directory gives the keys as a JSON Web Key Set (RFC 7517, RFC 8037), for
// receivers to verify with.
func Directory(keys []job.SigningKey) ([]byte, error) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, jose.JSONWebKey{
			Key: ed25519.PublicKey(k.Public), KeyID: k.KID, Algorithm: string(jose.EdDSA), Use: "sig",
		})
	}
	return json.Marshal(set)
}

// thumbprint gives a key's id: its JWK thumbprint with SHA-256 (RFC 7638).
func thumbprint(public ed25519.PublicKey) (string, error) {
	sum, err := (&jose.JSONWebKey{Key: public}).Thumbprint(crypto.SHA256)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(sum), nil
}

// exampleKeys are keys whose private part is published, by their public part in
// base64: the examples of RFC 9421 (appendix B.1.4) and RFC 8032
// (section 7.1; the first is also that of RFC 8037).
var exampleKeys = map[string]bool{
	"JrQLj5P/89iXES9+vFgrIy29clF9CC/oPPsw3c5D0bs=": true,
	"11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=": true,
	"PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw=": true,
	"/FHNjmIYoaONpH7QAjDwWAgW7RO6MwOsXeuRFUiQgCU=": true,
	"J4EX/BRMcjQPZ9DyMW6Dhs7/vyskKMnFH+98WX8dQm4=": true,
	"7Bcrk61eVjv0kyxw4SRQNMNUZ+8u/U1k6/gZaDRn4r8=": true,
}

var errExampleKey = errors.New("it is an example of an RFC, whose private part everybody knows; use another key")

// refuseExample refuses the keys of the RFCs' examples.
func refuseExample(public ed25519.PublicKey) error {
	if exampleKeys[base64.StdEncoding.EncodeToString(public)] {
		return errExampleKey
	}
	return nil
}
