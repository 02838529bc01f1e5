package webhook

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/forgerun/forgerun/job"
)

const (
	secretPrefix = "whsec_" // Standard Webhooks
	secretBytes  = 32
)

// Secrets makes signing secrets of subscriptions, in the form of Standard Webhooks: whsec_ and base64.
type Secrets struct {
	vault *Vault
}

// NewSecrets returns Secrets that encrypts with the vault.
func NewSecrets(v *Vault) *Secrets { return &Secrets{v} }

// New generates a secret for a webhook. It returns the text for the owner, and the encrypted form for storage.
func (s *Secrets) New(webhook job.ID) (secret string, sealed []byte, err error) {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	return secretText(random), s.vault.Seal(secretContext(webhook), random), nil
}

// Reveal decrypts a stored secret of a webhook, and returns the text that its owner received.
func (s *Secrets) Reveal(webhook job.ID, sealed []byte) (string, error) {
	random, err := s.vault.Open(secretContext(webhook), sealed)
	if err != nil {
		return "", fmt.Errorf("the secret of webhook %s cannot be used: %w", webhook, err)
	}
	return secretText(random), nil
}

func secretText(random []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(random)
}

func secretContext(webhook job.ID) string { return "webhook:" + webhook.String() }
