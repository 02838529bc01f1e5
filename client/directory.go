package client

import (
	"context"
	"crypto/ed25519"
	"errors"
	"sync"
	"time"
)

// Keeping the published keys, as docs/webhooks.md tells receivers to.
const (
	keepKeys    = 5 * time.Minute
	askAgain    = time.Minute      // for a key that is not among them
	afterError  = 5 * time.Second  // when the keys could not be read
	useOldKeys  = time.Hour        // while they cannot be read
	waitForKeys = 10 * time.Second // by a verification
)

// Directory keeps the service's published keys: for five minutes, and it reads
// them once more, at most once a minute, when a key is not among them. It is
// safe for use by several goroutines. Its Key is a Verifier's Keys.
type Directory struct {
	c    *Client
	mu   sync.Mutex
	keys KeySet
	read time.Time // when keys was read
	next time.Time // not to be asked again before
	err  error     // why the latest reading failed
}

// Directory makes one for the client's service. Its URL should be https.
func (c *Client) Directory() *Directory { return &Directory{c: c} }

// Key finds a key. While the service cannot be asked, keys that were read
// before stay in use for an hour.
func (d *Directory) Key(keyID string) (ed25519.PublicKey, error) {
	d.mu.Lock() // held while asking: others wait for the same answer
	defer d.mu.Unlock()
	now := d.c.now()
	_, known := d.keys[keyID]
	fresh := d.keys != nil && now.Sub(d.read) < keepKeys
	if (!known || !fresh) && !now.Before(d.next) {
		d.ask(now)
	}
	if d.err != nil && now.Sub(d.read) >= useOldKeys {
		return nil, d.err
	}
	key, err := d.keys.Key(keyID)
	if err != nil && d.err != nil {
		return nil, errors.Join(d.err, errors.New("client: the signature's key may be a new one"))
	}
	return key, err
}

func (d *Directory) ask(now time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), waitForKeys)
	defer cancel()
	keys, err := d.c.SigningKeys(ctx)
	d.err = err
	if err != nil {
		d.next = now.Add(afterError)
		return
	}
	d.keys, d.read, d.next = keys, now, now.Add(askAgain)
}
