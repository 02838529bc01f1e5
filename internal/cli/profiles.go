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

func profilesCommand(s *session.Session) *cobra.Command {
	c := s.Plain(command.Group(&cobra.Command{
		Use: "profiles", Aliases: []string{"profile"}, Short: "The services that you use, with their keys",
		Long: "Profiles are the services that you use, with their keys, in a file that nobody else can read: see 'forgerun help profiles-file'.",
	}))
	c.AddCommand(setProfileCommand(s),
		namedCommand(s, "use NAME", "Make a profile the current one; \"\" for none",
			func(all *access.Profiles, name string) { all.Current = name }),
		listProfilesCommand(s),
		namedCommand(s, "remove NAME", "Forget a profile", func(all *access.Profiles, name string) {
			delete(all.All, name)
			if all.Current == name {
				all.Current = ""
			}
		}))
	return c
}

func setProfileCommand(s *session.Session) *cobra.Command {
	var endpoint access.Endpoint
	keyStdin, tokenStdin := false, false
	c := command.New("set NAME", "Make or change a profile", func(_ *cobra.Command, args []string) (err error) {
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
		return withProfiles(s, func(all *access.Profiles) error { return setProfile(all, args[0], endpoint) })
	})
	c.Long = "Makes or changes a profile; what no flag names stays. The first profile becomes the current one. Keys are better given on\n" +
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
	c := s.Plain(command.New("login [PROFILE]", "Keep the address of a service and its API key in a profile",
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
			return withProfiles(s, func(all *access.Profiles) error {
				all.Current = name
				s.Notef("The key is right. It is kept as profile %s in %s.", name, all.Path())
				return setProfile(all, name, endpoint)
			})
		}))
	c.Long = "Asks for an API key, or reads a line of standard input, tries it at the service, and keeps both in a profile, which becomes\n" +
		"the current one (\"default\" without a name)."
	c.Flags().StringVar(&endpoint.URL, "url", "http://127.0.0.1:8080", "`address` of the service")
	return c
}

// withProfiles changes the profiles, and writes them.
func withProfiles(s *session.Session, change func(*access.Profiles) error) error {
	profiles, err := access.LoadProfiles(s.Getenv)
	if err != nil {
		return err
	}
	if err := change(profiles); err != nil {
		return err
	}
	return profiles.Save()
}

func setProfile(profiles *access.Profiles, name string, changes access.Endpoint) error {
	if profiles.All == nil {
		profiles.All = map[string]access.Endpoint{}
	}
	old := profiles.All[name]
	profiles.All[name] = access.Endpoint{
		URL: cmp.Or(changes.URL, old.URL), Key: cmp.Or(changes.Key, old.Key),
		AdminURL: cmp.Or(changes.AdminURL, old.AdminURL), AdminToken: cmp.Or(changes.AdminToken, old.AdminToken),
	}
	if profiles.All[name].URL == "" && profiles.All[name].AdminURL == "" {
		return command.Usagef("a profile needs --url or --admin-url")
	}
	profiles.Current = cmp.Or(profiles.Current, name)
	return nil
}

// namedCommand changes something about a profile that there is.
func namedCommand(s *session.Session, use, short string, change func(all *access.Profiles, name string)) *cobra.Command {
	return command.New(use, short, func(_ *cobra.Command, args []string) error {
		return withProfiles(s, func(all *access.Profiles) error {
			if args[0] != "" {
				if _, err := all.Find(args[0]); err != nil {
					return err
				}
			}
			change(all, args[0])
			return nil
		})
	})
}

// listed is a profile as it is shown: without its secrets.
type listed struct {
	Name     string `json:"name"`
	Current  bool   `json:"current"`
	URL      string `json:"url"`
	HasKey   bool   `json:"has_key"`
	AdminURL string `json:"admin_url"`
	HasToken bool   `json:"has_admin_token"`
}

var profileView = output.NewView("name",
	"NAME:name, CURRENT, URL:url, KEY:has_key, ADMIN URL:admin_url, ADMIN TOKEN:has_admin_token", func(v any) string {
		return map[bool]string{true: "*"}[output.At(v, "current") == true]
	})

func listProfilesCommand(s *session.Session) *cobra.Command {
	return command.New("list", "List profiles, without their secrets", func(*cobra.Command, []string) error {
		profiles, err := access.LoadProfiles(s.Getenv)
		if err != nil {
			return err
		}
		printer, err := s.Printer()
		if err != nil {
			return err
		}
		var all []any
		for _, name := range profiles.Names() {
			p := profiles.All[name]
			all = append(all, listed{name, name == profiles.Current, p.URL, p.Key != "", p.AdminURL, p.AdminToken != ""})
		}
		return printer.List(profileView, all)
	})
}
