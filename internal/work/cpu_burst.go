package work

import (
	"context"
	"crypto/sha256"
	"math"
)

// cpuBurst is CPU_BURST: it hashes, 64 KiB in each unit, for as long as the step
// lasts.
type cpuBurst struct {
	idle
	turns chan struct{}
	block [4096]byte
}

func (*cpuBurst) phase() string { return "HASHING" }

func (*cpuBurst) units(int) int { return math.MaxInt }

// unit waits for a turn and hashes 16 blocks, each beginning with the hash of
// the one before.
func (b *cpuBurst) unit(ctx context.Context, _ int) (more bool, err error) {
	select {
	case b.turns <- struct{}{}:
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	for range 16 {
		sum := sha256.Sum256(b.block[:])
		copy(b.block[:], sum[:])
	}
	<-b.turns
	return true, nil
}
