// Package accounts has the commands about clients and their API keys. Where an admin listener is known they use the operator
// API, and the public API otherwise.
package accounts

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/output"
	"github.com/forgerun/forgerun/internal/cli/session"
)

var clientView = output.NewView("client_id",
	"CLIENT:client_id, ACTIVE JOBS:active_jobs.used, WEBHOOKS:webhooks.used, AGE:created_at:age, "+
		"LIMIT:active_jobs.limit:wide")

var madeView = output.NewView("client_id", "CLIENT:client_id, KEY ID:key_id, API KEY:api_key")

var keyView = output.NewView("key_id",
	"KEY ID:key_id, SCOPE:scope, EXPIRES:expires_at:age, REVOKED:revoked_at:age, REPLACED BY:replaced_by")

var newKeyView = output.NewView("key_id", "KEY ID:key_id, API KEY:api_key, EXPIRES:expires_at:age")

const whichAPI = "Where an admin listener is known (--admin-url, FORGERUN_ADMIN_URL, a context, a running forgerun dev) this asks the\n" +
	"operator API, and the public API otherwise."

// ClientsCommand is "clients" with what is below it.
func ClientsCommand(s *session.Session) *cobra.Command {
	c := both(s, command.Group(&cobra.Command{
		Use: "clients", Aliases: []string{"client"}, Short: "Make clients and look at them",
		Long: "Makes clients and looks at them.\n\n" + whichAPI,
	}))
	c.AddCommand(createClientCommand(s),
		s.AdminPages(command.New("list", "List clients with their use of limits (operators)", nil), clientView, 50, session.At("/clients")),
		command.New("get CLIENT", "Show a client (operators)", s.AdminShow(clientView, session.At("/clients/%s"))))
	return c
}

// KeysCommand is "keys" with what is below it.
func KeysCommand(s *session.Session) *cobra.Command {
	c := both(s, command.Group(&cobra.Command{
		Use: "keys", Aliases: []string{"key"}, Short: "Make, renew and revoke API keys",
		Long: "Makes, renews and revokes API keys. A key is printed once, by the command that makes it.\n\n" + whichAPI,
	}))
	c.AddCommand(createKeyCommand(s),
		&cobra.Command{
			Use: "renew CLIENT", Short: "Replace the API key that is used by a new one, and print that", Args: command.Exactly(1),
			Long: "Replaces the API key that the command uses, which may have expired some days ago, by a new one, by the public API.",
			RunE: session.Show(s, newKeyView, (*client.Client).RenewKey),
		}, listKeysCommand(s), revokeKeyCommand(s))
	return c
}

func both(s *session.Session, c *cobra.Command) *cobra.Command {
	return s.ForOperators(s.ForClients(c))
}

// apis gives the operator API if it is known, and the public one otherwise.
func apis(s *session.Session) (*operator.Client, *client.Client, *output.Printer, error) {
	printer, err := s.Printer()
	if err != nil {
		return nil, nil, nil, err
	}
	admin, err := s.Operator()
	if !errors.Is(err, access.ErrNoAddress) {
		return admin, nil, printer, err
	}
	public, err := s.Client()
	return nil, public, printer, err
}

// made is a client, with its first key if that was asked for.
type made struct {
	ClientID string `json:"client_id"`
	KeyID    string `json:"key_id,omitempty"`
	APIKey   string `json:"api_key,omitempty"`
}

func createClientCommand(s *session.Session) *cobra.Command {
	withKey := false
	c := command.New("create", "Make a client; --with-key makes its first API key too",
		func(c *cobra.Command, _ []string) error { return createClient(c.Context(), s, withKey) })
	c.Flags().BoolVar(&withKey, "with-key", false, "make its first API key too, and print it")
	return c
}

func createClient(ctx context.Context, s *session.Session, withKey bool) error {
	admin, public, printer, err := apis(s)
	if err != nil {
		return err
	}
	var one made
	if admin == nil { // with open registration, or as operator
		if public, err = s.Registrar(); err != nil {
			return err
		}
	}
	if admin != nil {
		if err := ask(ctx, admin, http.MethodPost, "/clients", nil, &one); err != nil {
			return err
		}
	} else if one.ClientID, err = public.CreateClient(ctx); err != nil {
		return err
	}
	if withKey {
		key, err := createKey(ctx, admin, public, one.ClientID, false, "")
		if err != nil {
			s.Notef("The client %s was made.", one.ClientID)
			return err
		}
		one.KeyID, one.APIKey = key.KeyID, key.APIKey
	}
	return printer.One(madeView, one)
}

func clientPath(id string) string { return "/clients/" + url.PathEscape(id) }

func createKeyCommand(s *session.Session) *cobra.Command {
	rotate, scope := false, ""
	c := command.New("create CLIENT", "Make an API key, and print it: it is never shown again",
		func(c *cobra.Command, args []string) error {
			admin, public, printer, err := apis(s)
			if err != nil {
				return err
			}
			if scope != "" && admin == nil {
				return command.Usagef("--scope is for operators: give --admin-url")
			}
			key, err := createKey(c.Context(), admin, public, args[0], rotate, scope)
			if err != nil {
				return err
			}
			if key.APIKey == "" {
				s.Notef("The client has a key already, which is not shown again: --rotate replaces it.")
			}
			return printer.One(newKeyView, key)
		})
	c.Flags().BoolVar(&rotate, "rotate", false, "replace the present key, which stays valid for some minutes")
	c.Flags().StringVar(&scope, "scope", "", "what the key may do: read, submit or all (operators)")
	return c
}

// createKey makes a key by whichever API there is.
func createKey(
	ctx context.Context, admin *operator.Client, public *client.Client, id string, rotate bool, scope string,
) (*client.Key, error) {
	if admin == nil {
		return public.CreateKey(ctx, id, rotate)
	}
	body := map[string]any{"rotate": rotate}
	if scope != "" {
		body["scope"] = scope
	}
	key := &client.Key{}
	return key, ask(ctx, admin, http.MethodPost, clientPath(id)+"/keys", body, key)
}

// ask sends a request to the operator API, and reads the answer into a value.
func ask(ctx context.Context, admin *operator.Client, method, path string, body, into any) error {
	answer, err := admin.Do(ctx, method, path, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

func listKeysCommand(s *session.Session) *cobra.Command {
	return command.New("list CLIENT", "List the API keys of a client, without their secrets (operators)",
		s.Admin(func(ctx context.Context, admin *operator.Client, p *output.Printer, args []string) error {
			var one struct {
				Keys []json.RawMessage `json:"keys"`
			}
			if err := ask(ctx, admin, http.MethodGet, clientPath(args[0]), nil, &one); err != nil {
				return err
			}
			return p.List(keyView, output.Items(one.Keys))
		}))
}

func revokeKeyCommand(s *session.Session) *cobra.Command {
	return command.New("revoke CLIENT KEY_ID", "Revoke an API key, at once", func(c *cobra.Command, args []string) error {
		admin, public, _, err := apis(s)
		if err != nil {
			return err
		}
		if admin == nil {
			return public.RevokeKey(c.Context(), args[0], args[1])
		}
		_, err = admin.Do(c.Context(), http.MethodDelete, clientPath(args[0])+"/keys/"+url.PathEscape(args[1]), nil)
		return err
	})
}
