package main

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const mask = "********"

// printed is a value as 'forgerun config' shows it: an address of a store
// without its password, and otherwise as anybody may read it.
func printed(v variable, value string) string {
	if v.secret {
		if address, ok := maskAddress(value); ok {
			return address
		}
	}
	return v.shown(value)
}

// addressForm has the forms of FORGERUN_DATABASE_URL and FORGERUN_REDIS_URL:
// scheme, user, password with its colon, hosts, path, parameters. What stands
// where none of these can be makes it no match: it may be part of a password.
var addressForm = regexp.MustCompile(`^((?:postgres|postgresql|redis|rediss|unix|redis-socket|redis-sentinel|redis-cluster)://)` +
	`(?:([^:@/?#]*)(:[^/?#]*)?@)?` +
	`((?:` + hostForm + `(?:,` + hostForm + `)*)?)(/[\w./%~+-]*)?(?:\?([^#@]*))?$`)

const hostForm = `(?:[\w.-]+|\[[0-9a-fA-F:.]+\])(?::\d{1,5})?`

// plainParameters are no secrets, if their values look like plainValue.
var (
	plainParameters = []string{
		"sslmode", "sslrootcert", "sslcert", "sslkey", "target_session_attrs", "application_name", "connect_timeout", "search_path",
		"host", "port", "user", "dbname", "pool_max_conns", "pool_min_conns", "pool_max_conn_lifetime", "pool_max_conn_idle_time",
		"master", "db", "tls", "skip_verify", "sentinel_username",
	}
	plainValue = regexp.MustCompile(`^[\w./,+-]*$`)
)

// maskAddress masks the password of an address, and every parameter that is not
// known to be harmless. It is not ok if the address cannot be read for sure.
func maskAddress(raw string) (masked string, ok bool) {
	parts := addressForm.FindStringSubmatch(raw)
	if parts == nil {
		return "", false
	}
	scheme, user, password, hosts, path, query := parts[1], parts[2], parts[3], parts[4], parts[5], parts[6]
	if password == "" && user != "" && !strings.HasPrefix(scheme, "postgres") {
		return "", false // Redis has passwords without a user rather than the reverse
	}
	// Nor is it an address for whoever will use it. The hosts were looked at.
	if _, err := url.Parse(scheme + user + password + "@host" + path + "?" + query); err != nil {
		return "", false
	}
	masked = scheme
	switch {
	case password != "":
		masked += user + ":" + mask + "@"
	case user != "":
		masked += user + "@"
	}
	masked += hosts + path
	if query != "" {
		masked += "?" + maskParameters(query)
	}
	return masked, true
}

func maskParameters(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		switch {
		case slices.Contains([]string{"password", "sslpassword", "sentinel_password"}, name):
			pairs[i] = name + "=" + mask
		case !slices.Contains(plainParameters, name) || !plainValue.MatchString(value):
			pairs[i] = mask
		}
	}
	return strings.Join(pairs, "&")
}
