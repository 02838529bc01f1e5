package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
)

// at replaces each %s in path with an argument of the command. It returns the path and a client of the public or the operator API.
func (c *call) at(path string) (*client.Client, string, error) {
	for _, arg := range c.args {
		if strings.Contains(path, "%s") && strings.Trim(arg, ".") == "" {
			return nil, "", command.Usagef("%q is not an id", arg)
		}
		path = strings.Replace(path, "%s", url.PathEscape(arg), 1)
	}
	if strings.HasPrefix(path, adminPath) {
		api, _, err := c.operator()
		return api, path, err
	}
	api, err := c.client()
	return api, path, err
}

type param struct{ flag, name, initial, help string }

// isTime reports whether the parameter is a time. Its flag accepts RFC 3339, or an age such as 2h.
func (p param) isTime() bool {
	return p.name == "from" || p.name == "to" || p.name == "created_after" || p.name == "created_before"
}

func query(f *pflag.FlagSet, params []param) func() (url.Values, error) {
	for _, p := range params {
		f.String(p.flag, p.initial, p.help)
	}
	return func() (url.Values, error) {
		values := url.Values{}
		for _, p := range params {
			text, _ := f.GetString(p.flag) // fails only for an unknown flag
			if p.isTime() && text != "" {
				at, err := parseAge(text, time.Now())
				if err != nil {
					return nil, command.Usagef("--%s: %w", p.flag, err)
				}
				text = at.Format(time.RFC3339Nano)
			}
			if p.name == "state" {
				text = strings.ToUpper(text)
			}
			if text != "" {
				values.Set(p.name, text)
			}
		}
		return values, nil
	}
}

func parseAge(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return now.Add(-d).UTC(), nil
	}
	at, err := command.ParseTime(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 90m", text)
	}
	return at, nil
}

func show(v output.View, path string, params ...param) action {
	return reading(path, params, func(c *call, api *client.Client, path string, query url.Values) error {
		return c.shows(v)(api.Do(c, http.MethodGet, path, query, nil))
	})
}

func (c *call) shows(v output.View) func(item any, err error) error {
	return func(item any, err error) error {
		if err != nil {
			return err
		}
		return c.One(v, item)
	}
}

func whole(v output.View, path string, params ...param) action {
	return reading(path, params, func(c *call, api *client.Client, path string, query url.Values) error {
		answer, err := api.Do(c, http.MethodGet, path, query, nil)
		if err != nil {
			return err
		}
		var list struct {
			Data []json.RawMessage
			More bool
		}
		if err := json.Unmarshal(answer, &list); err != nil {
			return err
		}
		if list.More {
			c.notef("These are not all: the service stopped counting here.")
		}
		return c.List(v, list.Data)
	})
}

func list(v output.View, path string, most int, params ...param) action {
	limit := limit{most: most}
	read := reading(path, params, func(c *call, api *client.Client, path string, query url.Values) error {
		most := limit.most
		if most > 0 && !limit.given {
			most++ // read one more entry, to see whether the list is longer
		}
		if most > 0 {
			query.Set("limit", strconv.Itoa(min(100, most)))
		}
		entries, err := first(most, api.List(c, path, query))
		if err != nil {
			return err
		}
		if limit.cuts(c, len(entries)) {
			entries = entries[:limit.most]
		}
		return c.List(v, entries)
	})
	return func(f *pflag.FlagSet) run {
		f.Var(&limit, "limit", "show at most this `number` of entries; 0: all")
		return read(f)
	}
}

// limit is the value of the flag --limit, the number of entries to show; 0 means all.
type limit struct {
	most  int
	given bool // set by the user
}

func (l *limit) String() string { return strconv.Itoa(l.most) }

func (l *limit) Type() string { return "int" }

func (l *limit) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("must be 0 or more")
	}
	l.most, l.given = int(n), true
	return nil
}

// cuts reports whether n entries exceed the limit. If so, and the user did not set the limit, it prints a note.
func (l *limit) cuts(c *call, n int) bool {
	cut := l.most > 0 && n > l.most
	if cut && !l.given {
		c.notef("%d shown, there are more: --limit 0 shows all", l.most)
	}
	return cut
}

func reading(path string, params []param, do func(c *call, api *client.Client, path string, query url.Values) error) action {
	return func(f *pflag.FlagSet) run {
		values := query(f, params)
		return func(c *call) error {
			query, err := values()
			if err != nil {
				return err
			}
			api, path, err := c.at(path)
			if err != nil {
				return err
			}
			return do(c, api, path, query)
		}
	}
}

// first returns the first entries of a list; limit 0 means all.
func first[T any](limit int, entries iter.Seq2[T, error]) (found []T, err error) {
	for entry, err := range entries {
		if err != nil {
			return nil, err
		}
		if found = append(found, entry); len(found) == limit {
			break
		}
	}
	return found, nil
}

// admin sends a change to the operator API without retries.
func (c *call) admin(method, path string, body any) (json.RawMessage, error) {
	api, path, err := c.at(adminPath + path)
	if err != nil {
		return nil, err
	}
	// The API requires this header even without a body, to prevent forged requests: a web form of another site cannot set the header.
	return api.Do(c, method, path, nil, body, client.Header("Content-Type", "application/json"))
}

func (c *call) askAdmin(method, path string, body, into any) error {
	answer, err := c.admin(method, path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

func changeAdmin(v output.View, method, path string) action {
	return withoutFlags(func(c *call) error { return c.changeAdmin(v, method, path, nil) })
}

func (c *call) changeAdmin(v output.View, method, path string, body any) error {
	answer, err := c.admin(method, path, body)
	if err != nil || len(answer) == 0 {
		return err
	}
	return c.One(v, answer)
}

func withoutFlags(do run) action { return func(*pflag.FlagSet) run { return do } }

func using(do func(c *call, api *client.Client) error) action {
	return withoutFlags(func(c *call) error { return c.using(do) })
}

func (c *call) using(do func(c *call, api *client.Client) error) error {
	api, err := c.client()
	if err != nil {
		return err
	}
	return do(c, api)
}

func byID[T any](v output.View, method func(*client.Client, context.Context, string, ...client.Option) (T, error)) action {
	return using(func(c *call, api *client.Client) error { return c.shows(v)(method(api, c, c.args[0])) })
}

func deleteByID(method func(*client.Client, context.Context, string, ...client.Option) error) action {
	return using(func(c *call, api *client.Client) error { return method(api, c, c.args[0]) })
}
