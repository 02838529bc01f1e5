package main

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/conn"
	"github.com/forgerun/forgerun/handlers/cors"
	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/internal/operators"
)

// value returns a function that parses a text and stores the result in *field. `allowed` describes the valid texts in the function's
// error.
func value[T any](field *T, allowed string, read func(string) (T, error)) func(string) error {
	return func(s string) error {
		v, err := read(s)
		if err != nil {
			return errors.New("must be " + allowed)
		}
		*field = v
		return nil
	}
}

var errNotAllowed = errors.New("it is not allowed")

// within is like value, but refuses values below `low` or above `high`. `format` describes the valid texts, with a Printf verb for `low`
// and one for `high`.
func within[T cmp.Ordered](field *T, low, high T, format string, read func(string) (T, error)) func(string) error {
	return value(field, fmt.Sprintf(format, low, high), func(s string) (T, error) {
		v, err := read(s)
		if err == nil && !(v >= low && v <= high) { // the negation also refuses NaN
			err = errNotAllowed
		}
		return v, err
	})
}

func webURL(field *string, allowed string, holds func(*url.URL) bool) func(string) error {
	return optional(value(field, allowed, func(s string) (string, error) {
		u, err := url.Parse(s)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || !holds(u) {
			return "", errNotAllowed
		}
		return s, nil
	}))
}

func text(field *string) func(string) error {
	return func(s string) error { *field = s; return nil }
}

func storeURL(field *string, allowed string, check func(string) error) func(string) error {
	return optional(value(field, allowed, func(s string) (string, error) { return s, check(s) }))
}

// unread accepts every value, because OpenTelemetry reads the variable.
func unread(string) error { return nil }

func optional(parse func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return parse(s)
	}
}

// endpoint reads the URL of a trace collector. It refuses a user and a password, because OpenTelemetry would not send them.
func endpoint(field *string) func(string) error {
	return webURL(field, "an http or https URL without user and password, such as http://127.0.0.1:4318; credentials belong in "+
		"OTEL_EXPORTER_OTLP_HEADERS", func(u *url.URL) bool { return u.User == nil })
}

// pairs checks key=value pairs, separated by commas. OpenTelemetry's library, which reads the variable, refuses the same values.
func pairs(s string) error {
	for pair := range strings.SplitSeq(s, ",") {
		if strings.TrimSpace(s) != "" && !strings.Contains(pair, "=") {
			return fmt.Errorf("must be key=value pairs separated by commas, such as deployment.environment.name=production")
		}
	}
	return nil
}

func address(field *string) func(string) error {
	return optional(value(field, "an address such as 127.0.0.1:8080 or :8080", func(s string) (string, error) {
		_, port, err := net.SplitHostPort(s)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		return s, err
	}))
}

func onLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func publicURL(field *string) func(string) error {
	read := webURL(field, "an http or https URL without query, such as https://forgerun.example.com",
		func(u *url.URL) bool { return u.RawQuery == "" && u.Fragment == "" })
	return func(s string) error { return read(strings.TrimRight(s, "/")) }
}

func traceURL(field *string) func(string) error {
	const allowed = "an http or https URL with %s in it, such as https://traces.example.com/trace/%[1]s"
	return webURL(field, fmt.Sprintf(allowed, operator.TraceIDMark),
		func(u *url.URL) bool { return strings.Contains(u.Path+u.RawQuery+u.Fragment, operator.TraceIDMark) })
}

func tokens(field *string) func(string) error {
	return func(s string) error {
		*field = s
		_, err := operators.Parse(s, "")
		return err
	}
}

func key(field *[]byte) func(string) error {
	return optional(value(field, "32 bytes in base64, such as the output of 'openssl rand -base64 32'", func(s string) ([]byte, error) {
		decoded, err := base64.StdEncoding.DecodeString(s)
		if err == nil && len(decoded) != 32 {
			err = errNotAllowed
		}
		return decoded, err
	}))
}

func boolean(field *bool) func(string) error { return value(field, "true or false", strconv.ParseBool) }

func level(field *slog.Level) func(string) error {
	return value(field, "debug, info, warn or error", func(s string) (l slog.Level, err error) {
		err = l.UnmarshalText([]byte(s))
		return l, err
	})
}

func oneOf(field *string, allowed ...string) func(string) error {
	return value(field, "one of "+strings.Join(allowed, ", "), func(s string) (string, error) {
		if !slices.Contains(allowed, s) {
			return "", errNotAllowed
		}
		return s, nil
	})
}

func integer(field *int, low, high int) func(string) error {
	return within(field, low, high, "a whole number from %d to %d", strconv.Atoi)
}

func decimal(field *float64, low, high float64) func(string) error {
	return within(field, low, high, "a number from %g to %g", func(s string) (float64, error) { return strconv.ParseFloat(s, 64) })
}

func duration(field *time.Duration, low, high time.Duration) func(string) error {
	return within(field, low, high, "a duration from %v to %v, such as 30s, 10m or 24h", time.ParseDuration)
}

func subset[T ~string](field *[]T, all []T) func(string) error {
	return value(field, fmt.Sprintf("all, or some of %v separated by commas", all), func(s string) (chosen []T, err error) {
		if s == "all" {
			return all, nil
		}
		for name := range strings.SplitSeq(s, ",") {
			v := T(strings.TrimSpace(name))
			if !slices.Contains(all, v) {
				return nil, errNotAllowed
			}
			chosen = append(chosen, v)
		}
		return chosen, nil
	})
}

func masked(target *operator.Mask) func(string) error {
	return value(target, "patterns separated by commas, such as *password*,*secret*, or none", func(s string) (operator.Mask, error) {
		if s == "none" {
			s = ""
		}
		return operator.ParseMask(s)
	})
}

func origins(field *cors.Origins) func(string) error {
	return func(s string) (err error) { *field, err = cors.Parse(s); return err }
}

func networks(field *conn.Proxies) func(string) error {
	return func(s string) error {
		*field = nil
		for text := range strings.SplitSeq(s, ",") {
			if text = strings.TrimSpace(text); text == "" {
				continue
			}
			network, err := netip.ParsePrefix(text)
			if addr, single := netip.ParseAddr(text); single == nil && addr.Zone() == "" {
				network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
			}
			if err != nil || network.Addr().Is4In6() {
				return fmt.Errorf("must be networks and addresses separated by commas, such as 10.0.0.0/8,192.0.2.7,2001:db8::/32")
			}
			*field = append(*field, network.Masked())
		}
		return nil
	}
}
