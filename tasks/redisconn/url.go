package redisconn

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// errBadURL never quotes the address, which may contain a password.
var errBadURL = errors.New("not a Redis address; the forms are " +
	"redis://[user:password@]host[:port][/db], rediss:// with TLS, unix://[user:password@]/path[?db=n], " +
	"redis-sentinel://[user:password@]host1[:port],host2[:port][/db]?master=name " +
	"and redis-cluster://[user:password@]host1[:port],host2[:port]")

type scheme struct {
	port   string // default port; "" for a socket
	many   bool
	params []string
}

var (
	tlsParams = []string{"db", "tls", "skip_verify"}
	schemes   = map[string]scheme{
		"redis":          {port: "6379", params: tlsParams},
		"rediss":         {port: "6379", params: tlsParams},
		"redis-cluster":  {port: "6379", params: tlsParams, many: true},
		"redis-sentinel": {port: "26379", params: append([]string{"master", "sentinel_username", "sentinel_password"}, tlsParams...), many: true},
		"unix":           {params: []string{"db"}},
		"redis-socket":   {params: []string{"db"}},
	}
)

// CheckURL returns an error if the address is invalid. The error does not quote the address.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// User and password before the @ are for Redis, not for its sentinels. parseURL splits the hosts itself, because neither go-redis nor
// net/url supports lists of hosts with ports.
func parseURL(raw string) (*redis.UniversalOptions, error) {
	name, rest, ok := strings.Cut(raw, "://")
	form, known := schemes[name]
	if !ok || !known {
		return nil, errBadURL
	}
	end := strings.IndexAny(rest+"/", "/?#")
	at := strings.LastIndex(rest[:end], "@") + 1
	hosts := rest[at:end]
	u, err := url.Parse(name + "://" + rest[:at] + rest[end:])
	if err != nil || u.Fragment != "" {
		return nil, errBadURL
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errBadURL
	}
	for param := range query {
		if !slices.Contains(form.params, param) {
			return nil, fmt.Errorf("a %s:// address has no parameter %q", name, param)
		}
	}
	o := &redis.UniversalOptions{
		Username: u.User.Username(), IsClusterMode: name == "redis-cluster", MasterName: query.Get("master"),
		SentinelUsername: query.Get("sentinel_username"), SentinelPassword: query.Get("sentinel_password"),
	}
	o.Password, _ = u.User.Password()
	skipVerify := query.Get("skip_verify") == "true"
	if name == "rediss" || skipVerify || query.Get("tls") == "true" {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: skipVerify} //nolint:gosec // the operator asks for it
	}
	if name == "redis-sentinel" && o.MasterName == "" {
		return nil, fmt.Errorf("the parameter master is missing: %w", errBadURL)
	}
	if form.port == "" {
		if hosts != "" || u.Path == "" {
			return nil, errBadURL
		}
		o.Addrs, u.Path = []string{u.Path}, ""
	} else if o.Addrs, err = splitHosts(hosts, form.port); err != nil {
		return nil, err
	}
	if len(o.Addrs) > 1 && !form.many {
		return nil, fmt.Errorf("a %s:// address can have only one host: %w", name, errBadURL)
	}
	return o, readDatabase(o, query.Get("db"), u.Path)
}

// The database number may be a parameter or the path. If both are set, the path wins, but both must be valid.
func readDatabase(o *redis.UniversalOptions, param, path string) (err error) {
	for _, number := range []string{param, strings.Trim(path, "/")} {
		if number == "" {
			continue
		}
		if o.DB, err = strconv.Atoi(number); err != nil || o.DB < 0 {
			return errors.New("the number of the Redis database must be a whole number, 0 or more")
		}
	}
	if o.IsClusterMode && o.DB != 0 {
		return errors.New("a Redis Cluster has only database 0")
	}
	return nil
}

func splitHosts(hosts, defaultPort string) ([]string, error) {
	var addrs []string
	for _, hostport := range strings.Split(hosts, ",") {
		host, port, err := net.SplitHostPort(hostport)
		if err != nil {
			host, port = strings.Trim(hostport, "[]"), defaultPort
		}
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, errBadURL
		}
		if host == "" {
			host = "localhost"
		}
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return nil, errBadURL
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs, nil
}
