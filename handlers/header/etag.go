package header

import (
	"strings"
)

// MatchesETag reports whether an If-None-Match header contains the current tag ("" for none), by weak comparison (RFC 9110, section
// 13.1.2).
func MatchesETag(ifNoneMatch, tag string) bool {
	return isAny(ifNoneMatch) || holds(ifNoneMatch, strings.TrimPrefix(tag, "W/"), "W/")
}

// MatchesStrongly reports whether an If-Match header contains the current tag ("" for none), by strong comparison (RFC 9110, section
// 13.1.1). Weak tags never match.
func MatchesStrongly(ifMatch, tag string) bool {
	return isAny(ifMatch) || !strings.HasPrefix(tag, "W/") && holds(ifMatch, tag, "")
}

func isAny(list string) bool { return strings.Trim(list, " \t") == "*" }

// holds reports whether a list of entity tags contains tag. It ignores `prefix` at the start of each item.
func holds(list, tag, prefix string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if tag != "" && strings.TrimPrefix(strings.Trim(item, " \t"), prefix) == tag {
			return true
		}
	}
	return false
}
