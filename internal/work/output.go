package work

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"mime"
	"strconv"

	"github.com/forgerun/forgerun/job"
)

// The media types of result bodies.
const (
	MediaTypeJSON   = "application/json"
	MediaTypeNDJSON = "application/x-ndjson" // MANY_SMALL_OUTPUTS: each line is a JSON document
)

// resultFor depends only on d, so every attempt of a job returns the same bytes. Most results are a JSON object with the kind and the seed,
// padded to exactly d.PayloadSize bytes. A CUSTOM job can set the body, or the size and the media type. If the size is too small for the
// object, the result is a JSON string, or the number 0 for one byte. For a media type other than JSON, the result consists of random
// letters.
func resultFor(d job.Definition) *job.Result {
	if d.WorkKind == job.ManySmallOutputs {
		return lines(d)
	}
	media, start, end := MediaTypeJSON, fmt.Sprintf(`{"work_kind":"%s","seed":%d,"data":"`, d.WorkKind, d.Seed), `"}`
	if d.WorkKind == job.Custom {
		planned := d.Behavior.Result
		media = cmp.Or(planned.MediaType, media)
		base, _, _ := mime.ParseMediaType(media)
		switch {
		case planned.Body != nil:
			return resultOf(media, []byte(*planned.Body))
		case base != MediaTypeJSON:
			start, end = "", ""
		case d.PayloadSize == 1:
			start, end = "0", ""
		case d.PayloadSize < len(start)+len(end):
			start, end = `"`, `"`
		}
	}
	return resultOf(media, appendFilled(append(make([]byte, 0, d.PayloadSize), start...), d.PayloadSize, randomOf(d), end))
}

func appendFilled(body []byte, size int, random *rand.PCG, end string) []byte {
	filler := body[len(body) : size-len(end)]
	fill(filler, random)
	return append(body[:len(body)+len(filler)], end...)
}

func resultOf(mediaType string, body []byte) *job.Result {
	return &job.Result{MediaType: mediaType, Body: body, SHA256: sha256.Sum256(body)}
}

const lineSize = 128

// lines returns the result of MANY_SMALL_OUTPUTS: a JSON document in each line. Each line has 128 bytes, except the last, which has 128 to
// 255.
func lines(d job.Definition) *job.Result {
	body, random := make([]byte, 0, d.PayloadSize), randomOf(d)
	for n := int64(1); len(body) < d.PayloadSize; n++ {
		end := len(body) + lineSize
		if d.PayloadSize-len(body) < 2*lineSize {
			end = d.PayloadSize
		}
		body = append(strconv.AppendInt(append(body, `{"line":`...), n, 10), `,"data":"`...)
		body = appendFilled(body, end, random, "\"}\n")
	}
	return resultOf(MediaTypeNDJSON, body)
}

func randomOf(d job.Definition) *rand.PCG {
	return rand.NewPCG(uint64(d.Seed), uint64(d.PayloadSize))
}

// fill writes random letters from a to p, which need no JSON escapes.
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
