package header

import (
	"strings"
)

// MatchesETag reports whether an If-None-Match header holds the tag, compared
// weakly (RFC 9110, section 13.1.2).
func MatchesETag(ifNoneMatch, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	for item := range strings.SplitSeq(ifNoneMatch, ",") {
		item = strings.TrimSpace(item)
		if item == "*" || strings.TrimPrefix(item, "W/") == tag {
			return true
		}
	}
	return false
}

// MatchesStrongly reports whether an If-Match header holds the strong tag.
func MatchesStrongly(ifMatch, tag string) bool {
	for item := range strings.SplitSeq(ifMatch, ",") {
		if item = strings.Trim(item, " \t"); item == "*" || item == tag {
			return true
		}
	}
	return false
}
