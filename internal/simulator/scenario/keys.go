package scenario

import "math/rand/v2"

// keyMaker makes the idempotency keys of a plan: a number drawn from the seed
// and the intent's index, which tells different seeds apart, and the index
// itself, so that no two keys of a plan are equal.
//
// Keys are cut out of a string of many, because a string for each would be all
// the garbage that a plan makes.
type keyMaker struct {
	seed   uint64
	source rand.PCG
	block  string
	first  int64 // index of the first key of the block; 0: there is none yet
}

const (
	keyLen    = 16 + 12 // hexadecimal digits of both numbers
	blockKeys = 256
)

// key is that of the intent of the index, from 1. It is cheap if indexes rise.
func (k *keyMaker) key(index int64) string {
	if k.first == 0 || index < k.first || index >= k.first+blockKeys {
		k.fill(index)
	}
	at := int(index-k.first) * keyLen
	return k.block[at : at+keyLen]
}

func (k *keyMaker) fill(first int64) {
	block := make([]byte, 0, blockKeys*keyLen)
	for index := first; index < first+blockKeys; index++ {
		k.source.Seed(k.seed, uint64(index))
		block = appendHex(block, k.source.Uint64(), 16)
		block = appendHex(block, uint64(index), 12)
	}
	k.block, k.first = string(block), first
}

func appendHex(to []byte, v uint64, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		to = append(to, "0123456789abcdef"[v>>shift&15])
	}
	return to
}
