package session

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
)

// Run is what a command does.
type Run = func(c *cobra.Command, args []string) error

// Public has a command use the public API.
func (s *Session) Public(do func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error) Run {
	return using(s, s.Client, do)
}

// Admin has a command use the operator API.
func (s *Session) Admin(do func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error) Run {
	return using(s, s.Operator, do)
}

func using[T any](s *Session, find func() (T, error), do func(context.Context, T, *output.Printer, []string) error) Run {
	return func(c *cobra.Command, args []string) error {
		api, err := find()
		if err != nil {
			return err
		}
		printer, err := s.Printer()
		if err != nil {
			return err
		}
		return do(c.Context(), api, printer, args)
	}
}

// Show has a command print what the public API answers about the thing whose id is its argument.
func Show[T any](s *Session, v output.View, call func(*client.Client, context.Context, string, ...client.Option) (T, error)) Run {
	return s.Public(func(ctx context.Context, api *client.Client, p *output.Printer, args []string) error {
		shown, err := call(api, ctx, args[0])
		if err != nil {
			return err
		}
		return p.One(v, shown)
	})
}

// Delete has a command delete the thing whose id is its argument, by the public API.
func Delete(s *Session, call func(*client.Client, context.Context, string, ...client.Option) error) Run {
	return s.Public(func(ctx context.Context, api *client.Client, _ *output.Printer, args []string) error {
		return call(api, ctx, args[0])
	})
}

// Request is where something of the operator API is, and with which filters it is asked for.
type Request func(args []string) (path string, query url.Values, err error)

// At is a request without filters, at a path with the command's arguments in it.
func At(path string) Request {
	return func(args []string) (string, url.Values, error) { return filled(path, args), url.Values{}, nil }
}

// filled is a path with an argument in place of each %s.
func filled(path string, args []string) string {
	for _, arg := range args {
		path = strings.Replace(path, "%s", url.PathEscape(arg), 1)
	}
	return path
}

// AdminShow has a command print what the operator API answers.
func (s *Session) AdminShow(v output.View, ask Request) Run {
	return s.asking(ask, func(ctx context.Context, api *operator.Client, p *output.Printer, path string, query url.Values) error {
		answer, err := api.Get(ctx, path, query)
		if err != nil {
			return err
		}
		return p.One(v, answer)
	})
}

// AdminPages completes a command that prints a list of the operator API with pages.
func (s *Session) AdminPages(c *cobra.Command, v output.View, limit int, ask Request) *cobra.Command {
	c.RunE = s.asking(ask, func(ctx context.Context, api *operator.Client, p *output.Printer, path string, query url.Values) error {
		return List(p, v, api.List(ctx, path, query, limit), limit)
	})
	return Limit(c, &limit)
}

// AdminList has a command print a list of the operator API without pages, and say if there is more.
func (s *Session) AdminList(v output.View, ask Request) Run {
	return s.asking(ask, func(ctx context.Context, api *operator.Client, p *output.Printer, path string, query url.Values) error {
		text, err := api.Get(ctx, path, query)
		if err != nil {
			return err
		}
		var list struct {
			Data []json.RawMessage `json:"data"`
			More bool              `json:"more"`
		}
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
		if list.More {
			s.Notef("There is more than the service counts.")
		}
		return p.List(v, output.Items(list.Data))
	})
}

func (s *Session) asking(ask Request, do func(context.Context, *operator.Client, *output.Printer, string, url.Values) error) Run {
	return s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
		path, query, err := ask(args)
		if err != nil {
			return err
		}
		return do(ctx, api, p, path, query)
	})
}

// AdminChange has a command ask the operator API for a change at a path, with the command's arguments in it, and print the
// answer if there is one. body may be nil.
func (s *Session) AdminChange(v output.View, method, path string, body func() any) Run {
	return s.Admin(func(ctx context.Context, api *operator.Client, p *output.Printer, args []string) error {
		var sent any
		if body != nil {
			sent = body()
		}
		answer, err := api.Do(ctx, method, filled(path, args), sent)
		if err != nil || len(answer) == 0 {
			return err
		}
		return p.One(v, answer)
	})
}

// List prints a list, or its first limit entries; 0 for all.
func List[T any](p *output.Printer, v output.View, entries iter.Seq2[T, error], limit int) error {
	var all []any
	for entry, err := range entries {
		if err != nil {
			return err
		}
		if all = append(all, entry); len(all) == limit {
			break
		}
	}
	return p.List(v, all)
}

// Limit adds the flag --limit, whose default limit has.
func Limit(c *cobra.Command, limit *int) *cobra.Command {
	c.Flags().IntVar(limit, "limit", *limit, "at most so many; 0: all")
	return c
}
