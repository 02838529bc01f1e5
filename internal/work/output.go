package work

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"time"

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
	body := make([]byte, 0, d.PayloadSize)
	body = append(body, `{"work_kind":"`...)
	body = append(body, d.WorkKind...)
	body = append(body, `","seed":`...)
	body = strconv.AppendInt(body, d.Seed, 10)
	body = append(body, `,"data":"`...)
	const end = `"}`
	filler := body[len(body) : d.PayloadSize-len(end)]
	fill(filler, randomOf(d))
	body = append(body[:len(body)+len(filler)], end...)
	return resultOf(MediaTypeJSON, body)
}

func resultOf(mediaType string, body []byte) *job.Result {
	return &job.Result{MediaType: mediaType, Body: body, SHA256: sha256.Sum256(body)}
}

const lineSize = 128

// lines is MANY_SMALL_OUTPUTS: it produces the result body in lines of 128
// bytes, one by one.
type lines struct {
	idle
	body   []byte
	count  int64
	random *rand.PCG
}

func newLines(d job.Definition) *lines {
	return &lines{body: make([]byte, 0, d.PayloadSize), random: randomOf(d)}
}

func (*lines) phase() string { return "PRODUCING" }

func (o *lines) step(ctx context.Context, steps int, until time.Time) error {
	share := cap(o.body)/lineSize/steps + 1
	for range share {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !o.line() || !time.Now().Before(until) {
			return nil
		}
	}
	return nil
}

// result produces the lines that are still missing.
func (o *lines) result(job.Definition) *job.Result {
	for o.line() {
	}
	return resultOf(MediaTypeNDJSON, o.body)
}

// line appends one line and reports whether there was room for one. The last
// line is longer, so that the body ends with it exactly.
func (o *lines) line() bool {
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
	o.body = append(o.body, `{"line":`...)
	o.body = strconv.AppendInt(o.body, o.count, 10)
	o.body = append(o.body, `,"data":"`...)
	const closing = "\"}\n"
	filler := o.body[len(o.body) : end-len(closing)]
	fill(filler, o.random)
	o.body = append(o.body[:len(o.body)+len(filler)], closing...)
	return true
}

// randomOf gives the source of d's filler.
func randomOf(d job.Definition) *rand.PCG {
	return rand.NewPCG(uint64(d.Seed), uint64(d.PayloadSize))
}

// fill writes letters from a to p, 16 from each random number: JSON strings
// need no escapes for them.
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
