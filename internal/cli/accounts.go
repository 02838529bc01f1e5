package cli

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/cli/output"
)

var (
	clientView = output.NewView("CLIENT:client_id, ACTIVE JOBS:active_jobs.used, WEBHOOKS:webhooks.used, AGE:created_at:age, " +
		"LIMIT:active_jobs.limit:wide")
	newClientView = output.NewView("CLIENT:client_id, KEY ID:key_id, API KEY:api_key")
	keyView       = output.NewView("KEY ID:key_id, SCOPE:scope, EXPIRES:expires_at:age, REVOKED:revoked_at:age, REPLACED BY:replaced_by")
	newKeyView    = output.NewView("KEY ID:key_id, API KEY:api_key, EXPIRES:expires_at:age")
)

func (s *Shell) clients() *cobra.Command {
	c := s.group("clients client", "Create and show clients",
		s.cmd("create", "Create a client; --with-key also creates its first API key", createClient),
		s.cmd("list", "List clients, and how many active jobs and webhooks each has (operators)", list(clientView, adminPath+"/clients", 50)),
		s.cmd("get CLIENT", "Show a client (operators)", show(clientView, adminPath+"/clients/%s")))
	return s.forOperators(s.forClients(c))
}

func (s *Shell) keys() *cobra.Command {
	c := s.group("keys key", "Create, renew and revoke API keys",
		s.cmd("create CLIENT", "Create and print an API key; it is never shown again", createKey),
		s.cmd("renew CLIENT", "Replace the current API key, and print the new one", byID(newKeyView, (*client.Client).RenewKey)),
		s.cmd("list CLIENT", "List the API keys of a client, without their secrets (operators)", withoutFlags(listKeys)),
		s.cmd("revoke CLIENT KEY_ID", "Revoke an API key immediately", revokeKey))
	return s.forOperators(s.forClients(c))
}

// public returns a client of the public API. If the address of the operator API is configured, public returns nil. The caller must then use
// the operator API.
func (c *call) public() (*client.Client, error) {
	_, _, err := c.operator()
	if !errors.Is(err, access.ErrNoAddress) {
		return nil, err
	}
	return c.client()
}

func createClient(f *pflag.FlagSet) run {
	withKey := f.Bool("with-key", false, "also create and print the client's first API key")
	return func(c *call) error {
		public, err := c.public()
		if err != nil {
			return err
		}
		var made client.CreatedClient
		if public != nil { // pass the operator token, because some services let only operators create clients
			public = public.WithKey(c.finder().AdminToken())
			made.ClientID, err = public.CreateClient(c)
		} else {
			err = c.askAdmin(http.MethodPost, "/clients", nil, &made)
		}
		if err != nil {
			return err
		}
		shown := map[string]string{"client_id": made.ClientID}
		if *withKey {
			key, err := c.makeKey(public, made.ClientID, client.KeyRequest{})
			if err != nil {
				c.notef("Created client %s.", made.ClientID)
				return err
			}
			shown["key_id"], shown["api_key"] = key.KeyID, key.APIKey
		}
		return c.One(newClientView, shown)
	}
}

func createKey(f *pflag.FlagSet) run {
	var r client.KeyRequest
	f.BoolVar(&r.Rotate, "rotate", false, "replace the current key, which stays valid for a few minutes")
	f.StringVar(&r.Scope, "scope", "", "permissions of the key: read, submit or all (operators)")
	return func(c *call) error {
		public, err := c.public()
		if err != nil {
			return err
		}
		if r.Scope != "" && public != nil {
			return command.Usagef("--scope needs the operator API: pass --admin-url")
		}
		key, err := c.makeKey(public, c.args[0], r)
		if err != nil {
			return err
		}
		if key.APIKey == "" {
			c.notef("The client already has a key, which cannot be shown again. Use --rotate to replace it.")
		}
		return c.One(newKeyView, key)
	}
}

func (c *call) makeKey(public *client.Client, id string, r client.KeyRequest) (*client.Key, error) {
	if public != nil {
		return public.CreateKey(c, id, r.Rotate)
	}
	key := &client.Key{}
	return key, c.askAdmin(http.MethodPost, "/clients/"+url.PathEscape(id)+"/keys", r, key)
}

func listKeys(c *call) error {
	var shown struct{ Keys []json.RawMessage }
	if err := c.askAdmin(http.MethodGet, "/clients/%s", nil, &shown); err != nil {
		return err
	}
	return c.List(keyView, shown.Keys)
}

func revokeKey(*pflag.FlagSet) run {
	return func(c *call) error {
		public, err := c.public()
		switch {
		case err != nil:
			return err
		case public != nil:
			return public.RevokeKey(c, c.args[0], c.args[1])
		}
		return c.changeAdmin(nil, http.MethodDelete, "/clients/%s/keys/%s", nil)
	}
}
