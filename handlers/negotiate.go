package handlers

import (
	"strings"

	"github.com/gofiber/fiber/v2"
)

// acceptable reports whether an Accept header lets through application/json or
// application/problem+json (RFC 9110, section 12.5.1).
func acceptable(accept string) bool {
	switch accept {
	case "", "*/*", fiber.MIMEApplicationJSON:
		return true
	}
	return accepts(accept, fiber.MIMEApplicationJSON) || accepts(accept, mimeProblem)
}

// accepts looks for the most specific range that covers media; its weight
// decides. A header without any range excludes nothing.
func accepts(accept, media string) bool {
	major, _, _ := strings.Cut(media, "/")
	best, ok, ranges := 0, false, 0
	for item := range strings.SplitSeq(accept, ",") {
		mediaRange, params, _ := strings.Cut(item, ";")
		mediaRange = strings.TrimSpace(mediaRange)
		if mediaRange == "" {
			continue
		}
		ranges++
		specific := 0
		switch {
		case strings.EqualFold(mediaRange, media):
			specific = 3
		case strings.EqualFold(mediaRange, major+"/*"):
			specific = 2
		case mediaRange == "*/*":
			specific = 1
		}
		if specific > best {
			best, ok = specific, !isZeroWeight(params)
		}
	}
	return ok || ranges == 0
}

// isZeroWeight reports whether the parameters hold q=0, in any of its
// spellings.
func isZeroWeight(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		value = strings.TrimSpace(value)
		if strings.EqualFold(strings.TrimSpace(name), "q") && value != "" {
			return strings.Trim(value, "0") == "" || value[0] == '0' && strings.Trim(value, "0.") == ""
		}
	}
	return false
}

// prefers reports whether a Prefer header (RFC 7240) holds the given
// preference without a value.
func prefers(prefer, preference string) bool {
	for item := range strings.SplitSeq(prefer, ",") {
		token, _, _ := strings.Cut(item, ";")
		if strings.EqualFold(strings.TrimSpace(token), preference) {
			return true
		}
	}
	return false
}

// matchesETag reports whether an If-None-Match header holds the tag, compared
// weakly (RFC 9110, section 13.1.2).
func matchesETag(ifNoneMatch, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	for item := range strings.SplitSeq(ifNoneMatch, ",") {
		item = strings.TrimSpace(item)
		if item == "*" || strings.TrimPrefix(item, "W/") == tag {
			return true
		}
	}
	return false
}
