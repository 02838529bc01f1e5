package api

import (
	"slices"
	"strings"
)

var hooks = []string{"hook", "callback", "notif", "subscription"}

// NamesReceiver reports whether a request may name a receiver of notifications. A URL counts if its header, parameter or member has a
// name like "callback". With a path like "/webhooks", any URL in the body counts. A bulk operation counts without a URL, because it may
// send a notification at its end.
func NamesReceiver(m *Message) bool {
	path := strings.ToLower(m.URL.Path)
	if strings.HasSuffix(path, "/bulk") {
		return true
	}
	for name, values := range m.Header {
		if isHook(name) && slices.ContainsFunc(values, isURL) {
			return true
		}
	}
	for name, values := range m.URL.Query() {
		if isHook(name) && slices.ContainsFunc(values, isURL) {
			return true
		}
	}
	return hasReceiver(m.Body, isHook(path))
}

func isHook(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(hooks, func(part string) bool { return strings.Contains(name, part) })
}

func isURL(text string) bool {
	return strings.HasPrefix(text, "http://") || strings.HasPrefix(text, "https://")
}

// hasReceiver reports whether v contains a URL below a name such as "callback". If `named` is true, any URL counts.
func hasReceiver(v any, named bool) bool {
	switch v := v.(type) {
	case string:
		return named && isURL(v)
	case []any:
		return slices.ContainsFunc(v, func(item any) bool { return hasReceiver(item, named) })
	case map[string]any:
		for name, member := range v {
			if hasReceiver(member, named || isHook(name)) {
				return true
			}
		}
	}
	return false
}
