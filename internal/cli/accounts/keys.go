package accounts

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/operator"
	"github.com/forgerun/forgerun/internal/cli/session"
)

func createKeyCommand(s *session.Session) *cobra.Command {
	rotate, scope := false, ""
	c := &cobra.Command{
		Use: "create CLIENT", Short: "Make an API key, and print it: it is never shown again", Args: command.Exactly(1),
		Example: "  forgerun keys create CLIENT --rotate\n  export FORGERUN_API_KEY=$(forgerun keys create CLIENT -o go-template='{{.api_key}}')",
		RunE: func(c *cobra.Command, args []string) error {
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
		},
	}
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

func renewKeyCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "renew CLIENT", Short: "Replace the API key that is used by a new one, and print that", Args: command.Exactly(1),
		Long: "Replaces the API key that the command uses, which may have expired some days ago, by a new one, by the public API.",
		RunE: func(c *cobra.Command, args []string) error {
			public, err := s.Client()
			if err != nil {
				return err
			}
			printer, err := s.Printer()
			if err != nil {
				return err
			}
			key, err := public.RenewKey(c.Context(), args[0])
			if err != nil {
				return err
			}
			return printer.One(newKeyView, key)
		},
	}
}

func listKeysCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "list CLIENT", Aliases: []string{"ls"}, Short: "List the API keys of a client, without their secrets (operators)",
		Args: command.Exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			admin, err := s.Operator()
			if err != nil {
				return err
			}
			printer, err := s.Printer()
			if err != nil {
				return err
			}
			var one struct {
				Keys []json.RawMessage `json:"keys"`
			}
			if err := ask(c.Context(), admin, http.MethodGet, clientPath(args[0]), nil, &one); err != nil {
				return err
			}
			all := make([]any, len(one.Keys))
			for i, key := range one.Keys {
				all[i] = key
			}
			return printer.List(keyView, all)
		},
	}
}

func revokeKeyCommand(s *session.Session) *cobra.Command {
	return &cobra.Command{
		Use: "revoke CLIENT KEY_ID", Short: "Revoke an API key, at once", Args: command.Exactly(2),
		RunE: func(c *cobra.Command, args []string) error {
			admin, public, _, err := apis(s)
			if err != nil {
				return err
			}
			if admin == nil {
				return public.RevokeKey(c.Context(), args[0], args[1])
			}
			_, err = admin.Do(c.Context(), http.MethodDelete, clientPath(args[0])+"/keys/"+url.PathEscape(args[1]), nil)
			return err
		},
	}
}
