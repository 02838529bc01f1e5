package jobs

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/handlers/httpkit"
	"github.com/forgerun/forgerun/handlers/problem"
	"github.com/forgerun/forgerun/job"
)

// getResult supports conditional requests and range requests (RFC 9110, sections 13 and 14), and digests (RFC 9530).
func (s *API) getResult(r *httpkit.Request) error {
	result, err := onceEnded(s, r,
		func() (*job.StoredResult, error) { return s.Jobs.Result(r.Ctx, r.Caller.ClientID, r.PathID()) },
		func(j *job.Job) bool { return j.State.Final() })
	if err != nil {
		return err
	}
	media, _, _ := strings.Cut(result.MediaType, ";")
	if err := r.CheckAccept(strings.TrimSpace(media)); err != nil {
		return err
	}
	tag := `"` + hex.EncodeToString(result.SHA256[:]) + `"`
	if r.Unchanged(tag) {
		s.cacheResult(r, tag, result.ExpiresAt)
		r.Status(fiber.StatusNotModified)
		return nil
	}
	size := len(result.Body)
	part, ok := byteRange(r, tag, size)
	if !ok {
		r.Set(fiber.HeaderContentRange, "bytes */"+strconv.Itoa(size))
		return problem.WithStatus(fiber.StatusRequestedRangeNotSatisfiable,
			"The range must include some of the result's "+strconv.Itoa(size)+" bytes, numbered from 0.")
	}
	s.cacheResult(r, tag, result.ExpiresAt)
	r.Set(fiber.HeaderContentType, result.MediaType)
	r.Set(fiber.HeaderAcceptRanges, "bytes")
	r.Set("Repr-Digest", digest(result.SHA256))
	if part == nil {
		r.Set("Content-Digest", digest(result.SHA256))
		return r.Send(result.Body)
	}
	body := result.Body[part.First : part.Last+1]
	r.Set(fiber.HeaderContentRange, "bytes "+strconv.Itoa(part.First)+"-"+strconv.Itoa(part.Last)+"/"+strconv.Itoa(size))
	r.Set("Content-Digest", digest(sha256.Sum256(body)))
	return r.Status(fiber.StatusPartialContent).Send(body)
}

// cacheResult lets only this client cache the result until it expires.
func (s *API) cacheResult(r *httpkit.Request, tag string, expires time.Time) {
	expires = s.Real(expires)
	left := max(0, expires.Sub(s.Real(s.Clock())))
	r.Set(fiber.HeaderETag, tag)
	r.Set(fiber.HeaderCacheControl, "private, max-age="+strconv.Itoa(int(left/time.Second)))
	r.Set(fiber.HeaderExpires, expires.UTC().Format(http.TimeFormat))
	r.Vary(fiber.HeaderAccept, fiber.HeaderAuthorization)
}

// digest formats a SHA-256 as a structured field (RFC 9530, section 2).
func digest(sum [32]byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// byteRange returns the requested part of a body, or nil for the whole body. It returns false if the range is outside the body. Only GET
// supports ranges. If-Range must contain the strong tag. A date in If-Range never matches, because results have no Last-Modified.
func byteRange(r *httpkit.Request, tag string, size int) (*header.Span, bool) {
	requested := r.List(fiber.HeaderRange)
	if requested == "" || r.Method() != fiber.MethodGet {
		return nil, true
	}
	if condition := r.List(fiber.HeaderIfRange); condition != "" && condition != tag {
		return nil, true
	}
	return header.ParseRange(requested, size)
}
