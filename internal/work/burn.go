package work

import (
	"context"
	"crypto/sha256"
	"time"
)

// burn is CPU_BURST: it hashes, a unit of 64 KiB at a time, for as long as the
// step lasts.
type burn struct {
	idle
	turns chan struct{}
	block [4096]byte
}

func (*burn) phase() string { return "HASHING" }

func (b *burn) step(ctx context.Context, _ int, until time.Time) error {
	for {
		if err := b.unit(ctx); err != nil {
			return err
		}
		if !time.Now().Before(until) {
			return nil
		}
	}
}

// unit waits for a turn and hashes 16 blocks, each beginning with the hash of
// the one before.
func (b *burn) unit(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for range 16 {
		sum := sha256.Sum256(b.block[:])
		copy(b.block[:], sum[:])
	}
	<-b.turns
	return nil
}
