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

	"github.com/forgerun/forgerun/handlers/header"
	"github.com/forgerun/forgerun/job"
)

// getResult answers with the bytes that the job produced, whole or one range of
// them, under the conditions that the client sets (RFC 9110, sections 13 and
// 14) and with their digests (RFC 9530); see onceEnded.
func (s *Server) getResult(r *call) error {
	result, err := onceEnded(s, r,
		func() (*job.StoredResult, error) { return s.deps.Reader.Result(r.ctx, r.caller.ClientID, r.jobID) },
		func(j *job.Job) bool { return j.State.Final() })
	if err != nil {
		return err
	}
	media, _, _ := strings.Cut(result.MediaType, ";")
	if err := r.checkAccept(strings.TrimSpace(media)); err != nil {
		return err
	}
	tag := `"` + hex.EncodeToString(result.SHA256[:]) + `"`
	if header.MatchesETag(r.list(fiber.HeaderIfNoneMatch), tag) {
		s.cacheResult(r, tag, result.ExpiresAt)
		r.Status(fiber.StatusNotModified)
		return nil
	}
	size := len(result.Body)
	part, ok := r.byteRange(tag, size)
	if !ok {
		r.Set(fiber.HeaderContentRange, "bytes */"+strconv.Itoa(size))
		return statusError{fiber.StatusRequestedRangeNotSatisfiable,
			"The range must have some of the result's " + strconv.Itoa(size) + " bytes, which are numbered from 0."}
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

// cacheResult lets the client keep the result for as long as it can be had. It
// belongs to the one client alone.
func (s *Server) cacheResult(r *call, tag string, expires time.Time) {
	expires = s.deps.Real(expires)
	left := max(0, expires.Sub(s.deps.Real(s.deps.Clock())))
	r.Set(fiber.HeaderETag, tag)
	r.Set(fiber.HeaderCacheControl, "private, max-age="+strconv.Itoa(int(left/time.Second)))
	r.Set(fiber.HeaderExpires, expires.UTC().Format(http.TimeFormat))
	r.Vary(fiber.HeaderAccept, fiber.HeaderAuthorization)
}

// digest writes a SHA-256 as a structured field (RFC 9530, section 2).
func digest(sum [32]byte) string {
	return "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
}

// byteRange gives the part of a body that the request asks for, nil for all of
// it; false if it has no such part. Only GET has ranges, and If-Range must name
// the strong tag; a date there never matches, since results have none.
func (r *call) byteRange(tag string, size int) (*header.Span, bool) {
	requested := r.list(fiber.HeaderRange)
	if requested == "" || r.Method() != fiber.MethodGet {
		return nil, true
	}
	if condition := r.list(fiber.HeaderIfRange); condition != "" && condition != tag {
		return nil, true
	}
	return header.ParseRange(requested, size)
}

// resultView describes a result: AVAILABLE with everything but expired_at, or
// EXPIRED with expired_at alone.
type resultView struct {
	State       string        `json:"state"`
	MediaType   string        `json:"media_type,omitempty"`
	SizeBytes   *int          `json:"size_bytes,omitempty"`
	Checksum    *checksumView `json:"checksum,omitempty"`
	ExpiresAt   *job.Time     `json:"expires_at,omitempty"`
	DownloadURL string        `json:"download_url,omitempty"`
	ExpiredAt   *job.Time     `json:"expired_at,omitempty"`
}

type checksumView struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"value"` // lower-case hex
}

func (s *Server) resultViewOf(j *job.Job, now time.Time) *resultView {
	r := j.Result
	switch {
	case r == nil:
		return nil
	case r.Expired(now):
		return &resultView{State: "EXPIRED", ExpiredAt: job.TimeOf(&r.ExpiresAt)}
	}
	return &resultView{
		State: "AVAILABLE", MediaType: r.MediaType, SizeBytes: &r.Size,
		Checksum:  &checksumView{"sha256", hex.EncodeToString(r.SHA256[:])},
		ExpiresAt: job.TimeOf(&r.ExpiresAt), DownloadURL: s.links.At(resultPath(j.ID)),
	}
}

// hasResult reports whether j's result can be had now.
func hasResult(j *job.Job, now time.Time) bool {
	return j.State == job.Succeeded && j.Result != nil && !j.Result.Expired(now)
}
