package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

func contextsCommand(s *session.Session) *cobra.Command {
	c := s.Plain(command.Group(&cobra.Command{
		Use: "contexts", Aliases: []string{"context"}, Short: "The services that you use, with their keys",
		Long: "A context is a service that you use, with its keys. They are in a file that only you can read: see 'forgerun help contexts-file'.",
	}))
	c.AddCommand(setContextCommand(s),
		namedCommand(s, "use NAME", "Make a context the current one; \"\" for none",
			func(all *access.Contexts, name string) { all.Current = name }),
		listContextsCommand(s),
		namedCommand(s, "remove NAME", "Forget a context", func(all *access.Contexts, name string) {
			delete(all.All, name)
			if all.Current == name {
				all.Current = ""
			}
		}))
	return c
}

func setContextCommand(s *session.Session) *cobra.Command {
	var endpoint access.Endpoint
	keyStdin, tokenStdin := false, false
	c := command.New("set NAME", "Make or change a context", func(_ *cobra.Command, args []string) (err error) {
		switch {
		case keyStdin && tokenStdin:
			return command.Usagef("standard input is read once: use --key-stdin and --admin-token-stdin one after the other")
		case keyStdin:
			endpoint.Key, err = s.ReadSecret()
		case tokenStdin:
			endpoint.AdminToken, err = s.ReadSecret()
		}
		if err != nil {
			return err
		}
		return withContexts(s, func(all *access.Contexts) error { return setContext(all, args[0], endpoint) })
	})
	c.Long = "Makes or changes a context; what no flag names stays. The first context becomes the current one. Keys are better given on\n" +
		"standard input: arguments are visible in ps and in the history of the shell."
	f := c.Flags()
	f.StringVar(&endpoint.URL, "url", "", "`address` of the service")
	f.StringVar(&endpoint.Key, "key", "", "API `key` (--key-stdin is better)")
	f.BoolVar(&keyStdin, "key-stdin", false, "read the API key from standard input")
	f.StringVar(&endpoint.AdminURL, "admin-url", "", "`address` of the admin listener")
	f.StringVar(&endpoint.AdminToken, "admin-token", "", "operator's `token` (--admin-token-stdin is better)")
	f.BoolVar(&tokenStdin, "admin-token-stdin", false, "read the operator's token from standard input")
	return c
}

func loginCommand(s *session.Session) *cobra.Command {
	endpoint := access.Endpoint{}
	c := s.Plain(command.New("login [CONTEXT]", "Keep the address of a service and its API key in a context",
		func(c *cobra.Command, args []string) (err error) {
			if endpoint.Key, err = s.AskSecret("API key of " + endpoint.URL + ": "); err != nil {
				return err
			}
			api, err := s.ClientAt(endpoint.URL, endpoint.Key)
			if err != nil {
				return err
			}
			for _, err := range api.Jobs(c.Context(), client.JobFilter{PageSize: 1}) {
				if err != nil {
					return err
				}
				break
			}
			name := "default"
			if len(args) > 0 {
				name = args[0]
			}
			return withContexts(s, func(all *access.Contexts) error {
				all.Current = name
				s.Notef("The key is right. It is kept as context %s in %s.", name, all.Path())
				return setContext(all, name, endpoint)
			})
		}))
	c.Long = "Asks for an API key, or reads a line of standard input, tries it at the service, and keeps both in a context, which becomes\n" +
		"the current one (\"default\" without a name)."
	c.Flags().StringVar(&endpoint.URL, "url", "http://127.0.0.1:8080", "`address` of the service")
	return c
}

// withContexts changes the contexts, and writes them.
func withContexts(s *session.Session, change func(*access.Contexts) error) error {
	contexts, err := access.LoadContexts(s.Getenv)
	if err != nil {
		return err
	}
	if err := change(contexts); err != nil {
		return err
	}
	return contexts.Save()
}

func setContext(contexts *access.Contexts, name string, changes access.Endpoint) error {
	if contexts.All == nil {
		contexts.All = map[string]access.Endpoint{}
	}
	old := contexts.All[name]
	contexts.All[name] = access.Endpoint{
		URL: cmp.Or(changes.URL, old.URL), Key: cmp.Or(changes.Key, old.Key),
		AdminURL: cmp.Or(changes.AdminURL, old.AdminURL), AdminToken: cmp.Or(changes.AdminToken, old.AdminToken),
	}
	if contexts.All[name].URL == "" && contexts.All[name].AdminURL == "" {
		return command.Usagef("a context needs --url or --admin-url")
	}
	contexts.Current = cmp.Or(contexts.Current, name)
	return nil
}

// namedCommand changes something about a context that there is.
func namedCommand(s *session.Session, use, short string, change func(all *access.Contexts, name string)) *cobra.Command {
	c := command.New(use, short, func(_ *cobra.Command, args []string) error {
		return withContexts(s, func(all *access.Contexts) error {
			if args[0] != "" {
				if _, err := all.Find(args[0]); err != nil {
					return err
				}
			}
			change(all, args[0])
			return nil
		})
	})
	c.ValidArgsFunction = s.CompleteContext
	return c
}

// listed is a context as it is shown: without its secrets.
type listed struct {
	Name     string `json:"name"`
	Current  bool   `json:"current"`
	URL      string `json:"url"`
	HasKey   bool   `json:"has_key"`
	AdminURL string `json:"admin_url"`
	HasToken bool   `json:"has_admin_token"`
}

var contextView = output.NewView("name",
	"NAME:name, CURRENT, URL:url, KEY:has_key, ADMIN URL:admin_url, ADMIN TOKEN:has_admin_token", func(v any) string {
		return map[bool]string{true: "*"}[output.At(v, "current") == true]
	})

func listContextsCommand(s *session.Session) *cobra.Command {
	return command.New("list", "List contexts, without their secrets", func(*cobra.Command, []string) error {
		contexts, err := access.LoadContexts(s.Getenv)
		if err != nil {
			return err
		}
		printer, err := s.Printer()
		if err != nil {
			return err
		}
		var all []any
		for _, name := range contexts.Names() {
			p := contexts.All[name]
			all = append(all, listed{name, name == contexts.Current, p.URL, p.Key != "", p.AdminURL, p.AdminToken != ""})
		}
		return printer.List(contextView, all)
	})
}
