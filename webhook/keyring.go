package webhook

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/forgerun/forgerun/job"
)

// KeyStore stores the signing keys that all processes share.
type KeyStore interface {
	// SigningKeys returns the published keys, oldest first.
	SigningKeys(ctx context.Context) ([]job.SigningKey, error)
	// AddSigningKey adds a key. The key signs after the delay; a first key signs at once. The older keys retire after `delay` + `overlap`. If
	// `onlyFirst` is true and there already is a published key, AddSigningKey does nothing.
	AddSigningKey(ctx context.Context, k job.SigningKey, onlyFirst bool, delay, overlap time.Duration) error
}

// Receivers may cache the published keys for five minutes.
const (
	publishBefore = 10 * time.Minute // how long a new key is published before it signs
	publishAfter  = 24 * time.Hour   // how long an old key stays published after it stops signing
	refreshEvery  = 30 * time.Second
)

// Keyring holds the keys that sign all deliveries. The store contains them encrypted.
type Keyring struct {
	Log *slog.Logger // for failed refreshes in Run

	vault *Vault
	store KeyStore
	keys  atomic.Pointer[[]signingKey]
}

// signingKey is a published key with its decrypted private key. If decryption failed, err is set instead.
type signingKey struct {
	job.SigningKey
	private ed25519.PrivateKey
	err     error
}

// NewKeyring makes a keyring.
func NewKeyring(v *Vault, store KeyStore) *Keyring { return &Keyring{vault: v, store: store} }

// Ensure reads the keys, and adds a key if there is none. If several processes call it at once, the store keeps only one new key.
func (k *Keyring) Ensure(ctx context.Context) error {
	known, err := k.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	if len(known) == 0 {
		if err := k.generate(ctx, true, publishBefore, publishAfter); err != nil {
			return err
		}
	}
	return k.Refresh(ctx)
}

// Rotate adds a new key, which signs after ten minutes. The previous key stays published for a day after that. If `leaked` is true, the
// new key signs at once, and all older keys retire at once. Other processes use the new key within 30 seconds. Rotate fails if this
// process cannot decrypt the current key.
func (k *Keyring) Rotate(ctx context.Context, leaked bool) error {
	delay, overlap := publishBefore, publishAfter
	if leaked {
		delay, overlap = 0, 0
	}
	if err := k.Refresh(ctx); err != nil && !errors.Is(err, errNoKey) {
		return err
	}
	if err := k.generate(ctx, false, delay, overlap); err != nil {
		return err
	}
	return k.Refresh(ctx)
}

func (k *Keyring) generate(ctx context.Context, onlyFirst bool, delay, overlap time.Duration) error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	kid, err := thumbprint(public)
	if err != nil {
		return err
	}
	key := job.SigningKey{KID: kid, Public: public, Sealed: k.vault.Seal(keyContext(kid), private.Seed())}
	return k.store.AddSigningKey(ctx, key, onlyFirst, delay, overlap)
}

// Check returns an error if any key was encrypted with another master key. A process with the wrong master key must not encrypt secrets.
func (v *Vault) Check(keys []job.SigningKey) error {
	for _, key := range keys {
		if _, err := v.signingKey(key); err != nil {
			return fmt.Errorf("the signing key %s cannot be used: %w", key.KID, err)
		}
	}
	return nil
}

// Run refreshes the keys every 30 seconds, until ctx ends. After a failure, the keys of the last refresh stay in use until they retire.
func (k *Keyring) Run(ctx context.Context) {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := k.Refresh(ctx); err != nil && ctx.Err() == nil {
			k.Log.LogAttrs(ctx, slog.LevelError, "signing keys not refreshed", slog.String("action", "refresh_signing_keys"),
				slog.String("error_code", string(job.CodeOf(err))), slog.String("error_message", err.Error()))
		}
	}
}

// Refresh reads the keys again. It fails if the current key cannot be used. It leaves out other keys that it cannot decrypt, for example
// because the master key has changed.
func (k *Keyring) Refresh(ctx context.Context) error {
	known, err := k.store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	all := make([]signingKey, len(known))
	for i, key := range known {
		private, err := k.vault.signingKey(key)
		all[i] = signingKey{key, private, err}
	}
	current, err := choose(all, time.Now())
	if err == nil && current.err != nil {
		err = fmt.Errorf("the signing key %s cannot be used: %w", current.KID, current.err)
	}
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(key signingKey) bool { return key.err != nil })
	k.keys.Store(&all)
	return nil
}

func (v *Vault) signingKey(key job.SigningKey) (ed25519.PrivateKey, error) {
	kid, err := thumbprint(key.Public)
	if err != nil {
		return nil, err
	}
	if kid != key.KID {
		return nil, errors.New("its id does not match its public part")
	}
	seed, err := v.Open(keyContext(key.KID), key.Sealed)
	if err != nil {
		return nil, err
	}
	if len(seed) != ed25519.SeedSize {
		return nil, errSealed
	}
	private := ed25519.NewKeyFromSeed(seed)
	if !publicOf(private).Equal(ed25519.PublicKey(key.Public)) {
		return nil, errors.New("its private part does not match its public part")
	}
	return private, nil
}

var errNoKey = errors.New("there is no signing key")

func (k *Keyring) current(now time.Time) (signingKey, error) {
	keys := k.keys.Load()
	if keys == nil {
		return signingKey{}, errNoKey
	}
	return choose(*keys, now)
}

// choose returns the newest key that already signs and has not retired. If no key signs yet, because the store's clock is ahead, it
// returns the key that signs first.
func choose(keys []signingKey, now time.Time) (signingKey, error) {
	var best *signingKey
	for i := range keys {
		key := &keys[i]
		switch {
		case key.RetiresAt != nil && !now.Before(*key.RetiresAt):
		case best == nil,
			best.SignsFrom.After(now) && key.SignsFrom.Before(best.SignsFrom),
			!key.SignsFrom.After(now) && !key.SignsFrom.Before(best.SignsFrom):
			best = key
		}
	}
	if best == nil {
		return signingKey{}, errNoKey
	}
	return *best, nil
}

func publicOf(private ed25519.PrivateKey) ed25519.PublicKey {
	return private.Public().(ed25519.PublicKey)
}

func keyContext(kid string) string { return "signing-key:" + kid }
