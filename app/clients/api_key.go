package clients

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
)

// An API key is frk_<id>_<secret><checksum>. Each part is base62 with a fixed length. The id is public and identifies the key's row. Only
// a hash of the secret is stored. The checksum detects mistyped keys without a lookup, and lets scanners recognize leaked keys.
const (
	keyPrefix      = "frk_"
	keyIDLength    = 12 // 71 bits
	secretLength   = 43 // 256 bits
	checksumLength = 6  // CRC-32 of the prefix, id and secret
	base62         = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

const keyLength = len(keyPrefix) + keyIDLength + 1 + secretLength + checksumLength

func newAPIKey() (key, id string) {
	id = randomBase62(keyIDLength)
	body := keyPrefix + id + "_" + randomBase62(secretLength)
	return body + checksum(body), id
}

func parseAPIKey(key string) (id string, ok bool) {
	if len(key) != keyLength || key[len(keyPrefix)+keyIDLength] != '_' {
		return "", false
	}
	body := key[:keyLength-checksumLength]
	if checksum(body) != key[keyLength-checksumLength:] {
		return "", false
	}
	return publicPart(key)
}

// publicPart returns the id in a key. It checks neither the secret nor the checksum.
func publicPart(key string) (id string, ok bool) {
	if len(key) < len(keyPrefix)+keyIDLength || !strings.HasPrefix(key, keyPrefix) {
		return "", false
	}
	id = key[len(keyPrefix) : len(keyPrefix)+keyIDLength]
	for i := range len(id) {
		if strings.IndexByte(base62, id[i]) < 0 {
			return "", false
		}
	}
	return id, true
}

// A plain hash is sufficient because the secret has 256 random bits.
func hashAPIKey(key string) [32]byte { return sha256.Sum256([]byte(key)) }

func randomBase62(n int) string {
	b := make([]byte, n)
	for i := range b {
		digit, err := rand.Int(rand.Reader, big.NewInt(int64(len(base62))))
		if err != nil {
			panic(err) // crypto/rand never fails on a working system
		}
		b[i] = base62[digit.Int64()]
	}
	return string(b)
}

func checksum(body string) string {
	sum := crc32.ChecksumIEEE([]byte(body))
	var b [checksumLength]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = base62[sum%62]
		sum /= 62
	}
	return string(b[:])
}
