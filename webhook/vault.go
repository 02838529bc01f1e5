package webhook

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// masterKeyBytes is the length of the master key: AES-256.
const masterKeyBytes = 32

var errSealed = errors.New("it was encrypted with another FORGERUN_MASTER_KEY, or is damaged")

// Vault encrypts values with AES-256-GCM under the master key. A random nonce precedes each encrypted value. Decryption needs the same
// context as encryption, for example the id of the webhook.
type Vault struct {
	aead cipher.AEAD
}

// NewVault makes a vault with a master key of 32 bytes.
func NewVault(masterKey []byte) (*Vault, error) {
	if len(masterKey) != masterKeyBytes {
		return nil, fmt.Errorf("the master key (FORGERUN_MASTER_KEY) must have %d bytes, not %d", masterKeyBytes, len(masterKey))
	}
	block, err := aes.NewCipher(masterKey)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Vault{aead}, nil
}

// Seal encrypts a value for a context.
func (v *Vault) Seal(context string, plain []byte) []byte {
	return v.aead.Seal(nil, nil, plain, []byte(context)) //nolint:gosec // G407: this AEAD makes the nonce itself
}

// Open decrypts a value that was sealed for the same context. The usual cause of an error is a changed master key.
func (v *Vault) Open(context string, sealed []byte) ([]byte, error) {
	plain, err := v.aead.Open(nil, nil, sealed, []byte(context))
	if err != nil {
		return nil, errSealed
	}
	return plain, nil
}
