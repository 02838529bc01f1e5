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

// NewSecret generates a signing secret for a webhook. `secret` is the Standard Webhooks form, which the owner gets. `sealed` is the
// encrypted form, which the store gets.
func (v *Vault) NewSecret(webhook job.ID) (secret string, sealed []byte, err error) {
	random := randomSecret()
	return secretText(random), v.Seal(secretContext(webhook), random), nil
}

// Secret decrypts the stored secret of a webhook, and returns it in the Standard Webhooks form.
func (v *Vault) Secret(webhook job.ID, sealed []byte) (string, error) {
	random, err := v.Open(secretContext(webhook), sealed)
	if err != nil {
		return "", fmt.Errorf("the secret of webhook %s cannot be used: %w", webhook, err)
	}
	return secretText(random), nil
}

func randomSecret() []byte {
	random := make([]byte, secretBytes)
	_, _ = rand.Read(random) // never fails
	return random
}

func secretText(random []byte) string {
	return secretPrefix + base64.StdEncoding.EncodeToString(random)
}

func secretContext(webhook job.ID) string { return "webhook:" + webhook.String() }
