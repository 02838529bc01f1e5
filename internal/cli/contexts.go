package cli

import (
	"cmp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
)

var contextView = output.NewView("NAME:name, CURRENT, URL:url, KEY:has_key, ADMIN URL:admin_url, ADMIN TOKEN:has_admin_token",
	func(v any) string { return map[bool]string{true: "*"}[output.At(v, "current") == true] })

func (s *Shell) contexts() *cobra.Command {
	use := s.cmd("use NAME", "Make a context the current one; \"\" selects none",
		withContext(func(all *access.Contexts, name string) { all.Current = name }))
	remove := s.cmd("remove NAME", "Delete a context", withContext(func(all *access.Contexts, name string) {
		delete(all.All, name)
		if all.Current == name {
			all.Current = ""
		}
	}))
	use.ValidArgsFunction, remove.ValidArgsFunction = s.completeContext, s.completeContext
	c := s.group("contexts context", "Manage the services that you use, and their keys",
		s.cmd("set NAME", "Create or change a context", setContext),
		use,
		s.cmd("list", "List contexts, without their secrets", withoutFlags(listContexts)),
		remove)
	return s.commonFlags(c)
}

func setContext(f *pflag.FlagSet) run {
	var e access.Endpoint
	f.StringVar(&e.URL, "url", "", "`address` of the service")
	f.StringVar(&e.Key, "key", "", "API `key` (--key-stdin is better)")
	keyStdin := f.Bool("key-stdin", false, "read the API key from standard input")
	f.StringVar(&e.AdminURL, "admin-url", "", "`address` of the admin listener")
	f.StringVar(&e.AdminToken, "admin-token", "", "operator's `token` (--admin-token-stdin is better)")
	tokenStdin := f.Bool("admin-token-stdin", false, "read the operator's token from standard input")
	return func(c *call) (err error) {
		switch {
		case *keyStdin && *tokenStdin:
			return command.Usagef("--key-stdin and --admin-token-stdin cannot be combined: use them in separate commands")
		case *keyStdin:
			e.Key, err = c.readSecret("")
		case *tokenStdin:
			e.AdminToken, err = c.readSecret("")
		}
		if err != nil {
			return err
		}
		return c.changeContexts(func(all *access.Contexts) error { return merge(all, c.args[0], e) })
	}
}

func (s *Shell) login() *cobra.Command {
	return s.commonFlags(s.cmd("login [CONTEXT]", "Save the address of a service and an API key as a context", func(f *pflag.FlagSet) run {
		var e access.Endpoint
		f.StringVar(&e.URL, "url", "http://127.0.0.1:8080", "`address` of the service")
		return func(c *call) (err error) {
			if e.Key, err = c.readSecret("API key of " + e.URL + ": "); err != nil {
				return err
			}
			api, err := c.clientAt(e.URL, e.Key)
			if err != nil {
				return err
			}
			if _, err := first(1, api.Jobs(c, client.JobFilter{PageSize: 1})); err != nil {
				return err
			}
			name := "default"
			if len(c.args) > 0 {
				name = c.args[0]
			}
			return c.changeContexts(func(all *access.Contexts) error {
				all.Current = name
				c.notef("The key is valid. Saved as context %s in %s.", name, all.Path())
				return merge(all, name, e)
			})
		}
	}))
}

func (s *Shell) changeContexts(change func(*access.Contexts) error) error {
	contexts, err := access.LoadContexts(s.Getenv)
	if err != nil {
		return err
	}
	if err := change(contexts); err != nil {
		return err
	}
	return contexts.Save()
}

func merge(contexts *access.Contexts, name string, e access.Endpoint) error {
	old := contexts.All[name]
	e = access.Endpoint{
		URL: cmp.Or(e.URL, old.URL), Key: cmp.Or(e.Key, old.Key),
		AdminURL: cmp.Or(e.AdminURL, old.AdminURL), AdminToken: cmp.Or(e.AdminToken, old.AdminToken),
	}
	if e.URL == "" && e.AdminURL == "" {
		return command.Usagef("a context needs --url or --admin-url")
	}
	if contexts.All == nil {
		contexts.All = map[string]access.Endpoint{}
	}
	contexts.All[name], contexts.Current = e, cmp.Or(contexts.Current, name)
	return nil
}

func withContext(change func(all *access.Contexts, name string)) action {
	return withoutFlags(func(c *call) error {
		return c.changeContexts(func(all *access.Contexts) error {
			name := c.args[0]
			if name != "" {
				if _, err := all.Find(name); err != nil {
					return err
				}
			}
			change(all, name)
			return nil
		})
	})
}

func listContexts(c *call) error {
	contexts, err := access.LoadContexts(c.Getenv)
	if err != nil {
		return err
	}
	var all []any
	for _, name := range contexts.Names() {
		e := contexts.All[name]
		all = append(all, map[string]any{
			"name": name, "current": name == contexts.Current, "url": e.URL, "has_key": e.Key != "",
			"admin_url": e.AdminURL, "has_admin_token": e.AdminToken != "",
		})
	}
	return c.List(contextView, all)
}
