package handlers

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
)

// getResult answers with the bytes that the job produced, whole or one range of
// them, under the conditions that the client sets (RFC 9110, sections 13 and
// 14) and with their digests (RFC 9530).
func (s *Server) getResult(r *call) error {
	result, err := s.deps.Reader.Result(r.ctx, r.caller.ClientID, r.pathJob())
	if err != nil {
		return err
	}
	media, _, _ := strings.Cut(result.MediaType, ";")
	if err := r.checkAccept(strings.TrimSpace(media)); err != nil {
		return err
	}
	tag := `"` + hex.EncodeToString(result.SHA256[:]) + `"`
	if r.Request().Header.Peek(fiber.HeaderIfMatch) != nil && !matchesStrongly(r.list(fiber.HeaderIfMatch), tag) {
		return statusError{fiber.StatusPreconditionFailed, "The result is not the one that If-Match names."}
	}
	if matchesETag(r.list(fiber.HeaderIfNoneMatch), tag) {
		s.cacheResult(r, tag, result.ExpiresAt)
		r.Status(fiber.StatusNotModified)
		return nil
	}
	size := len(result.Body)
	part, ok := r.byteRange(tag, size)
	if !ok {
		r.Set(fiber.HeaderContentRange, "bytes */"+strconv.Itoa(size))
		return statusError{fiber.StatusRequestedRangeNotSatisfiable, "The range must have some of the result's " + strconv.Itoa(size) + " bytes, which are numbered from 0."}
	}
	s.cacheResult(r, tag, result.ExpiresAt)
	r.Set(fiber.HeaderContentType, result.MediaType)
	r.Set(fiber.HeaderAcceptRanges, "bytes")
	r.Set("Repr-Digest", digest(result.SHA256))
	if part == nil {
		r.Set("Content-Digest", digest(result.SHA256))
		return r.Send(result.Body)
	}
	body := result.Body[part.first : part.last+1]
	r.Set(fiber.HeaderContentRange, "bytes "+strconv.Itoa(part.first)+"-"+strconv.Itoa(part.last)+"/"+strconv.Itoa(size))
	r.Set("Content-Digest", digest(sha256.Sum256(body)))
	return r.Status(fiber.StatusPartialContent).Send(body)
}

// cacheResult lets the client keep the result for as long as it can be had. It
// belongs to the one client alone.
func (s *Server) cacheResult(r *call, tag string, expires time.Time) {
	left := max(0, expires.Sub(s.deps.Clock()))
	r.Set(fiber.HeaderETag, tag)
	r.Set(fiber.HeaderCacheControl, "private, max-age="+strconv.Itoa(int(left/time.Second)))
	r.Set(fiber.HeaderExpires, expires.UTC().Format(http.TimeFormat))
	r.Vary(fiber.HeaderAccept, fiber.HeaderAuthorization)
}

// digest writes a SHA-256 as a structured field (RFC 9530, section 2).
func digest(sum [32]byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// matchesStrongly reports whether an If-Match header holds the strong tag.
func matchesStrongly(ifMatch, tag string) bool {
	for item := range strings.SplitSeq(ifMatch, ",") {
		if item = trimSpace(item); item == "*" || item == tag {
			return true
		}
	}
	return false
}

// byteRange gives the part of a body that the request asks for, nil for all of
// it; false if it has no such part. Only GET has ranges, and If-Range must name
// the strong tag; a date there never matches, since results have none.
func (r *call) byteRange(tag string, size int) (*span, bool) {
	header := r.list(fiber.HeaderRange)
	if header == "" || r.Method() != fiber.MethodGet {
		return nil, true
	}
	if condition := r.list(fiber.HeaderIfRange); condition != "" && condition != tag {
		return nil, true
	}
	return parseRange(header, size)
}

// span is a part of a body, both ends included.
type span struct{ first, last int }

// parseRange reads a Range header (RFC 9110, section 14.1.2) for a body of the
// given size. Several ranges, other units and what is malformed are ignored:
// nil stands for the whole body. It is false for a range outside the body.
func parseRange(header string, size int) (*span, bool) {
	unit, set, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(unit, "bytes") || size == 0 {
		return nil, true
	}
	spec := ""
	for item := range strings.SplitSeq(set, ",") {
		item = trimSpace(item)
		if item != "" && spec != "" {
			return nil, true
		}
		spec += item
	}
	from, to, ok := strings.Cut(spec, "-")
	if !ok || strings.Trim(from+to, "0123456789") != "" || from == "" && to == "" {
		return nil, true
	}
	first, last := position(from, size), position(to, size)
	switch {
	case from == "" && last == 0: // the last 0 bytes
		return nil, false
	case from == "":
		return &span{size - last, size - 1}, true
	case to == "":
		last = size
	case isLess(to, from):
		return nil, true
	}
	if first >= size {
		return nil, false
	}
	return &span{first, min(last, size-1)}, true
}

// position reads digits as a number, at most limit.
func position(digits string, limit int) int {
	n, err := strconv.Atoi(digits)
	if digits != "" && err != nil { // more digits than an int holds
		return limit
	}
	return min(n, limit)
}

// isLess compares numbers of any length, in digits.
func isLess(a, b string) bool {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	return len(a) < len(b) || len(a) == len(b) && a < b
}
