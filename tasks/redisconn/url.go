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

// errBadURL never quotes the address: it may hold a password.
var errBadURL = errors.New("not a Redis address; the forms are " +
	"redis://[user:password@]host[:port][/db], rediss:// with TLS, unix://[user:password@]/path[?db=n], " +
	"redis-sentinel://[user:password@]host1[:port],host2[:port][/db]?master=name " +
	"and redis-cluster://[user:password@]host1[:port],host2[:port]")

// parseURL reads the address of a Redis, in the forms of errBadURL. Beside them
// it knows redis-socket:// as another word for unix://, and the parameters
// tls=true and skip_verify=true, and for sentinels sentinel_username and
// sentinel_password; the user and password before the @ are those of the Redis
// itself. Anything else is an error.
//
// The list of hosts is split by hand: net/url refuses more than one port.
func parseURL(raw string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, errBadURL
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse(scheme + "://" + user + tail)
	if err != nil || u.Fragment != "" {
		return nil, errBadURL
	}
	password, _ := u.User.Password()
	o := &redis.UniversalOptions{Username: u.User.Username(), Password: password}
	if err := readQuery(o, scheme, u.RawQuery); err != nil {
		return nil, err
	}
	return o, readLocation(o, scheme, hosts, u.Path)
}

// readLocation fills in where the Redis is: hosts or socket, and database.
func readLocation(o *redis.UniversalOptions, scheme, hosts, path string) (err error) {
	port := "6379"
	switch scheme {
	case "unix", "redis-socket":
		if hosts != "" || path == "" {
			return errBadURL
		}
		o.Addrs = []string{path}
		return nil
	case "rediss":
		if o.TLSConfig == nil {
			o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	case "redis-sentinel":
		port = "26379"
		if o.MasterName == "" {
			return fmt.Errorf("the parameter master is missing: %w", errBadURL)
		}
	case "redis-cluster":
		o.IsClusterMode = true
	case "redis":
	default:
		return errBadURL
	}
	if o.Addrs, err = readHosts(hosts, port); err != nil {
		return err
	}
	if single := scheme == "redis" || scheme == "rediss"; single && len(o.Addrs) > 1 {
		return fmt.Errorf("%s:// takes one host: %w", scheme, errBadURL)
	}
	if path = strings.Trim(path, "/"); path != "" {
		if o.DB, err = readDB(path); err != nil {
			return err
		}
	}
	if o.IsClusterMode && o.DB != 0 {
		return errors.New("a Redis Cluster has database 0 only")
	}
	return nil
}

func readHosts(hosts, defaultPort string) ([]string, error) {
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

func readDB(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, errors.New("the number of the Redis database is not a number from 0 up")
	}
	return n, nil
}

// readQuery fills in what the parameters say. Which ones a scheme knows is
// checked, so that a misplaced one is not silently ignored.
func readQuery(o *redis.UniversalOptions, scheme, raw string) error {
	known := []string{"tls", "skip_verify", "db"}
	switch scheme {
	case "redis-sentinel":
		known = append(known, "master", "sentinel_username", "sentinel_password")
	case "unix", "redis-socket":
		known = []string{"db"}
	}
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errBadURL
	}
	for name := range query {
		if !slices.Contains(known, name) {
			return fmt.Errorf("the parameter %q means nothing in a %s:// address", name, scheme)
		}
	}
	if db := query.Get("db"); db != "" {
		if o.DB, err = readDB(db); err != nil {
			return err
		}
	}
	if query.Get("tls") == "true" || query.Get("skip_verify") == "true" {
		o.TLSConfig = &tls.Config{
			MinVersion:         tls.VersionTLS12,
			InsecureSkipVerify: query.Get("skip_verify") == "true", //nolint:gosec // asked for by the operator
		}
	}
	o.MasterName = query.Get("master")
	o.SentinelUsername, o.SentinelPassword = query.Get("sentinel_username"), query.Get("sentinel_password")
	return nil
}
