package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forgerun/forgerun/handlers/operator"
	"github.com/forgerun/forgerun/internal/operators"
)

// Each of these reads one kind of value into a field. Its error says what is
// allowed.

func text(field *string) func(string) error {
	return func(s string) error { *field = s; return nil }
}

// unread is for values that a library reads by itself.
func unread(string) error { return nil }

// optional lets a value be missing.
func optional(parse func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return parse(s)
	}
}

// endpoint is a collector's URL. A user and a password in it would never be
// sent.
func endpoint(field *string) func(string) error {
	return func(s string) error {
		u, err := url.Parse(s)
		switch {
		case s != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == ""):
			return fmt.Errorf("an http or https URL, such as http://127.0.0.1:4318")
		case s != "" && u.User != nil:
			return fmt.Errorf("a URL without user and password; credentials belong in OTEL_EXPORTER_OTLP_HEADERS")
		}
		*field = s
		return nil
	}
}

// pairs checks what OpenTelemetry's library reads by itself: key=value pairs,
// separated by commas. It refuses what the library does.
func pairs(s string) error {
	if s = strings.TrimSpace(s); s == "" {
		return nil
	}
	for pair := range strings.SplitSeq(s, ",") {
		if !strings.Contains(pair, "=") {
			return fmt.Errorf("key=value pairs separated by commas, such as deployment.environment.name=production")
		}
	}
	return nil
}

func address(field *string) func(string) error {
	return func(s string) error {
		if s != "" {
			if _, _, err := net.SplitHostPort(s); err != nil {
				return fmt.Errorf("an address such as 127.0.0.1:8080 or :8080")
			}
		}
		*field = s
		return nil
	}
}

func onLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

func publicURL(field *string) func(string) error {
	return func(s string) error {
		u, err := url.Parse(s)
		if s != "" && (err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "") {
			return fmt.Errorf("an http or https URL without query, such as https://forgerun.example.com")
		}
		*field = strings.TrimRight(s, "/")
		return nil
	}
}

// traceURL takes the address of a page of traces.
func traceURL(field *string) func(string) error {
	return func(s string) error {
		u, err := url.Parse(strings.ReplaceAll(s, operator.TraceIDMark, "0"))
		if s != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || !strings.Contains(s, operator.TraceIDMark)) {
			return fmt.Errorf("an http or https URL with %s in it, such as https://traces.example.com/trace/%[1]s", operator.TraceIDMark)
		}
		*field = s
		return nil
	}
}

func tokens(field *string) func(string) error {
	return func(s string) error {
		*field = s
		_, err := operators.Parse(s, "")
		return err
	}
}

func key(field *[]byte) func(string) error {
	return func(s string) error {
		if s == "" {
			*field = nil
			return nil
		}
		decoded, err := base64.StdEncoding.DecodeString(s)
		if err != nil || len(decoded) != 32 {
			return fmt.Errorf("32 bytes in base64, as of 'openssl rand -base64 32'")
		}
		*field = decoded
		return nil
	}
}

func boolean(field *bool) func(string) error {
	return func(s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return fmt.Errorf("true or false")
		}
		*field = b
		return nil
	}
}

func level(field *slog.Level) func(string) error {
	return func(s string) error {
		if err := field.UnmarshalText([]byte(s)); err != nil {
			return fmt.Errorf("debug, info, warn or error")
		}
		return nil
	}
}

func oneOf(field *string, allowed ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(allowed, s) {
			return fmt.Errorf("one of %s", strings.Join(allowed, ", "))
		}
		*field = s
		return nil
	}
}

func integer(field *int, low, high int) func(string) error {
	return func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < low || n > high {
			return fmt.Errorf("a whole number from %d to %d", low, high)
		}
		*field = n
		return nil
	}
}

func decimal(field *float64, low, high float64) func(string) error {
	return func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= low && f <= high) { // written so that NaN is refused
			return fmt.Errorf("a number from %g to %g", low, high)
		}
		*field = f
		return nil
	}
}

func duration(field *time.Duration, low, high time.Duration) func(string) error {
	return func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil || d < low || d > high {
			return fmt.Errorf("a duration from %v to %v, such as 30s, 10m or 24h", low, high)
		}
		*field = d
		return nil
	}
}

func subset[T ~string](field *[]T, all []T) func(string) error {
	return func(s string) error {
		if s == "all" {
			*field = all
			return nil
		}
		var chosen []T
		for name := range strings.SplitSeq(s, ",") {
			v := T(strings.TrimSpace(name))
			if !slices.Contains(all, v) {
				return fmt.Errorf("all, or a list of %v", all)
			}
			chosen = append(chosen, v)
		}
		*field = chosen
		return nil
	}
}

// masked reads patterns of names; the word none is for none.
func masked(target *operator.Mask) func(string) error {
	return func(value string) (err error) {
		if value == "none" {
			value = ""
		}
		if *target, err = operator.ParseMask(value); err != nil {
			return errors.New("must be patterns separated by commas, such as *password*,*secret*, or none")
		}
		return nil
	}
}
