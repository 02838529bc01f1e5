// Package header parses values of HTTP headers. Accept, Prefer, Range and entity tags are not structured fields (RFC 9651), so a parser
// for these does not fit. Fiber's parsers ignore weights, or refuse values that RFC 9110 says to ignore.
package header

import (
	"strconv"
	"strings"
)

// Accepts reports whether an Accept header allows a media type.
func Accepts(accept, media string) bool { return quality(accept, media) > 0 }

// Excludes reports whether an Accept header explicitly sets the weight of a media type to 0.
func Excludes(accept, media string) bool {
	weight, specific := ofMedia(accept, media)
	return specific > 0 && weight == 0
}

// Prefers reports whether `media` has a higher weight in an Accept header than `other`.
func Prefers(accept, media, other string) bool {
	return quality(accept, media) > quality(accept, other)
}

// fullQuality is the weight 1, in thousandths.
const fullQuality = 1000

func quality(accept, media string) int {
	weight, _ := ofMedia(accept, media)
	return weight
}

// ofMedia returns the weight of a media type in an Accept header, in thousandths (RFC 9110, section 12.5.1). The weight is that of the
// most specific matching range. `best` says how specific this range is, from 1 (*/*) to 3. If no range matches, both results are 0. An
// empty header accepts everything.
func ofMedia(accept, media string) (weight, best int) {
	if accept == "" || accept == "*/*" {
		return fullQuality, 0
	}
	major, _, _ := strings.Cut(media, "/")
	ranges := 0
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
			best, weight = specific, weightOf(params)
		}
	}
	if ranges == 0 {
		return fullQuality, 0
	}
	return weight, best
}

// weightOf returns the weight in the parameters of a range, or 1 if it has no valid weight.
func weightOf(params string) int {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		weight, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil || !(weight >= 0 && weight <= 1) { // written so that NaN is refused, too
			return fullQuality
		}
		return int(weight*fullQuality + 0.5)
	}
	return fullQuality
}
