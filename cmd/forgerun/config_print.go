package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/term"
)

type variableGroup struct {
	title     string
	variables []variable
}

func (c *Config) groups() []variableGroup {
	return []variableGroup{
		{"Stores, listeners, workers", c.serviceVariables()},
		{"Limits, work kinds, keys, retention", c.limitVariables()},
		{"Webhooks, outcome stream, time limits", c.deliveryVariables()},
		{"Connections", c.networkVariables()},
		{"Tracing", c.tracingVariables()},
	}
}

// Print writes the role's values in groups, with secrets masked. Without `all`, it leaves out defaults.
func (c *Config) Print(w io.Writer, style term.Style, role string, all bool, getenv func(string) string) {
	hidden, shown := 0, 0
	for _, g := range c.groups() {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		lines := 0
		for _, v := range g.variables {
			value, isSet := v.effective(role, getenv)
			if !isSet && !all {
				hidden++
				continue
			}
			if lines == 0 {
				if shown > 0 {
					_, _ = fmt.Fprintln(w)
				}
				_, _ = fmt.Fprintln(w, style.Paint(term.Strong, g.title))
			}
			origin := map[bool]string{true: "(set)", false: "(default)"}[isSet]
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", v.name, printed(v, value), origin, v.help)
			lines++
			shown++
		}
		_ = table.Flush()
	}
	if hidden > 0 {
		if shown > 0 {
			_, _ = fmt.Fprintln(w)
		}
		_, _ = fmt.Fprintf(w, "%d variables have their default values; to show them: forgerun config %s --all\n", hidden, role)
	}
}

const mask = "********"

// shown returns a value that is safe to show. It masks secrets. It also masks any value with an @, because such a value may contain a
// password.
func (v variable) shown(value string) string {
	if value != "" && (v.secret || strings.Contains(value, "@")) {
		return mask
	}
	return value
}

// printed is like shown, but masks only the password and the parameters of an address.
func printed(v variable, value string) string {
	if v.secret {
		if address, ok := maskAddress(value); ok {
			return address
		}
	}
	return v.shown(value)
}

var addressSchemes = []string{
	"postgres", "postgresql", "redis", "rediss", "unix", "redis-socket", "redis-sentinel", "redis-cluster", "http", "https",
}

// maskAddress masks the password and the parameters of an address, because parameters may contain a password. `ok` is false if it is
// unclear which part is the password.
func maskAddress(raw string) (masked string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil || !slices.Contains(addressSchemes, u.Scheme) || u.Opaque+u.Fragment != "" ||
		strings.Contains(u.Host+u.Path+u.RawQuery, "@") {
		return "", false
	}
	user := u.User.Username()
	switch _, hasPassword := u.User.Password(); {
	case hasPassword:
		user += ":" + mask + "@"
	case user != "" && !strings.HasPrefix(u.Scheme, "postgres"):
		return "", false // for Redis, the password may be in the place of the user
	case user != "":
		user += "@"
	}
	path, query := u.Path, ""
	if strings.HasPrefix(u.Scheme, "http") && strings.Trim(path, "/") != "" {
		path = "/" + mask // some services put a customer's secret into the path
	}
	if u.RawQuery != "" {
		query = "?" + mask
	}
	return u.Scheme + "://" + user + u.Host + path + query, true
}

func (v variable) effective(role string, getenv func(string) string) (value string, isSet bool) {
	fallback := v.fallback
	if role == "dev" && v.dev != "" {
		fallback = v.dev
	}
	if value = getenv(v.name); value == "" || value == fallback {
		return fallback, false
	}
	return value, true
}

// unknownVariables returns FORGERUN_ variables that no role reads: probably typos.
func unknownVariables(environ []string) []string {
	var c Config
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "FORGERUN_") && !slices.Contains(access.Variables, name) &&
			!slices.ContainsFunc(c.variables(), func(v variable) bool { return v.name == name }) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
