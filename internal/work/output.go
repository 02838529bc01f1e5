package work

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/forgerun/forgerun/job"
)

// The media types of result bodies.
const (
	MediaTypeJSON   = "application/json"
	MediaTypeNDJSON = "application/x-ndjson" // MANY_SMALL_OUTPUTS: one JSON document a line
)

// document makes d's result: a JSON object that names the kind and the seed,
// filled up to exactly d.PayloadSize bytes. It depends on d alone, so every
// attempt of a job gives the same bytes.
func document(d job.Definition) *job.Result {
	body := fmt.Appendf(make([]byte, 0, d.PayloadSize), `{"work_kind":"%s","seed":%d,"data":"`, d.WorkKind, d.Seed)
	return resultOf(MediaTypeJSON, appendFilled(body, d.PayloadSize, randomOf(d), `"}`))
}

// appendFilled appends letters and the end, so that the body is of that size.
func appendFilled(body []byte, size int, random *rand.PCG, end string) []byte {
	filler := body[len(body) : size-len(end)]
	fill(filler, random)
	return append(body[:len(body)+len(filler)], end...)
}

func resultOf(mediaType string, body []byte) *job.Result {
	return &job.Result{MediaType: mediaType, Body: body, SHA256: sha256.Sum256(body)}
}

const lineSize = 128

// smallOutputs is MANY_SMALL_OUTPUTS: it produces the result body in lines of
// 128 bytes, one in each unit.
type smallOutputs struct {
	idle
	body   []byte
	count  int64
	random *rand.PCG
}

func newSmallOutputs(d job.Definition) *smallOutputs {
	return &smallOutputs{body: make([]byte, 0, d.PayloadSize), random: randomOf(d)}
}

func (*smallOutputs) phase() string { return "PRODUCING" }

func (o *smallOutputs) units(steps int) int { return cap(o.body)/lineSize/steps + 1 }

func (o *smallOutputs) unit(context.Context, int) (more bool, err error) { return o.line(), nil }

// result produces the lines that are still missing.
func (o *smallOutputs) result(job.Definition) *job.Result {
	for o.line() {
	}
	return resultOf(MediaTypeNDJSON, o.body)
}

// line appends a line and reports whether there was room; the last one is longer and fills the body.
func (o *smallOutputs) line() bool {
	room := cap(o.body) - len(o.body)
	if room == 0 {
		return false
	}
	size := lineSize
	if room < 2*lineSize {
		size = room
	}
	o.count++
	end := len(o.body) + size
	o.body = append(strconv.AppendInt(append(o.body, `{"line":`...), o.count, 10), `,"data":"`...)
	o.body = appendFilled(o.body, end, o.random, "\"}\n")
	return true
}

// randomOf gives the source of d's filler.
func randomOf(d job.Definition) *rand.PCG {
	return rand.NewPCG(uint64(d.Seed), uint64(d.PayloadSize))
}

// fill writes letters from a to p, which JSON need not escape, 16 from each random number.
func fill(b []byte, random *rand.PCG) {
	const low, a = 0x0f0f0f0f0f0f0f0f, 0x6161616161616161
	var letters [16]byte
	for len(b) > 0 {
		x := random.Uint64()
		binary.LittleEndian.PutUint64(letters[:8], x&low+a)
		binary.LittleEndian.PutUint64(letters[8:], x>>4&low+a)
		b = b[copy(b, letters[:]):]
	}
}
