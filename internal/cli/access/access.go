// Package access finds the service and the credentials to use. It looks in flags, the environment, the contexts file, and the data folder
// of a running forgerun dev.
package access

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// The environment variables of the command line.
const (
	EnvURL      = "FORGERUN_URL"
	EnvKey      = "FORGERUN_API_KEY"
	EnvAdminURL = "FORGERUN_ADMIN_URL"
	// The servers read EnvAdminToken too. The variable may list several tokens, of which the command line uses the first.
	EnvAdminToken = "FORGERUN_ADMIN_TOKEN" //nolint:gosec // name of a variable, not a credential
	EnvContext    = "FORGERUN_CONTEXT"
	EnvContexts   = "FORGERUN_CONTEXTS"
	EnvDataDir    = "FORGERUN_DATA_DIR"
)

// Variables are the environment variables that only the command line reads.
var Variables = []string{EnvURL, EnvKey, EnvAdminURL, EnvContext, EnvContexts}

// Endpoint is a service with credentials. Fields may be empty.
type Endpoint struct {
	URL        string `yaml:"url,omitempty"`
	Key        string `yaml:"key,omitempty"`
	AdminURL   string `yaml:"admin_url,omitempty"`
	AdminToken string `yaml:"admin_token,omitempty"`
}

// Flags are the flags of the command line.
type Flags struct {
	Endpoint
	Context string
}

// source is an endpoint from one place, such as flags or a context. If the source has a credential but no address, `anywhere` allows
// sending the credential to any address.
type source struct {
	Endpoint
	anywhere bool
}

// Finder determines the address of the service and the credentials for it.
type Finder struct {
	Flags  Flags
	Getenv func(string) string
}

// ErrNoAddress means that no source has an address.
var ErrNoAddress = errors.New("unknown address")

// Client returns the address of the public API and a key. The key may be empty.
func (f Finder) Client() (url, key string, err error) {
	return f.find("the service", "--url", EnvURL, func(p Endpoint) (string, string) { return p.URL, p.Key })
}

// Operator returns the address of the operator API and a token. The token may be empty.
func (f Finder) Operator() (url, token string, err error) {
	return f.find("the admin listener", "--admin-url", EnvAdminURL, func(p Endpoint) (string, string) { return p.AdminURL, p.AdminToken })
}

func (f Finder) find(what, flag, variable string, of func(Endpoint) (address, credential string)) (address, credential string, err error) {
	sources, missing, err := f.sources()
	if err != nil {
		return "", "", err
	}
	if address, credential = pick(sources, of); address != "" {
		return address, credential, nil
	}
	if missing != "" {
		missing = " (" + missing + ")"
	}
	return "", "", command.Usagef("%s: %w: pass %s, set %s, create a context (forgerun contexts set --help) "+
		"or start forgerun dev in this folder%s", what, ErrNoAddress, flag, variable, missing)
}

// AdminToken returns the operator token from a flag or the environment; "" if there is none.
func (f Finder) AdminToken() string {
	return cmp.Or(f.Flags.AdminToken, FirstToken(f.Getenv(EnvAdminToken)))
}

// pick returns the first address, and the first credential that may be sent to this address. If the source of a credential has an
// address, the credential is sent only to that address. If the source has no address, source.anywhere must be true.
func pick(sources []source, of func(Endpoint) (address, credential string)) (address, credential string) {
	for _, s := range sources {
		a, c := of(s.Endpoint)
		if address == "" {
			address = a
		}
		if credential == "" && c != "" && (a == "" && s.anywhere || same(a, address)) {
			credential = c
		}
	}
	return address, credential
}

func same(a, b string) bool {
	trim := func(s string) string { return strings.TrimSuffix(strings.TrimRight(s, "/"), "/v1") }
	return trim(a) == trim(b)
}

// sources returns all known endpoints in the order of precedence. `missing` says why forgerun dev is not running, or is "".
func (f Finder) sources() (sources []source, missing string, err error) {
	sources = append(sources, source{f.Flags.Endpoint, true})
	environment := source{Endpoint{
		URL: f.Getenv(EnvURL), Key: f.Getenv(EnvKey), AdminURL: f.Getenv(EnvAdminURL), AdminToken: FirstToken(f.Getenv(EnvAdminToken)),
	}, true}
	contexts, err := LoadContexts(f.Getenv)
	if err != nil {
		return nil, "", err
	}
	if name := f.Flags.Context; name != "" { // a context on the command line takes precedence over the environment
		endpoint, err := contexts.Find(name)
		return append(sources, source{Endpoint: endpoint}, environment), "", err
	}
	sources = append(sources, environment)
	if name := cmp.Or(f.Getenv(EnvContext), contexts.Current); name != "" {
		endpoint, err := contexts.Find(name)
		if err != nil {
			return nil, "", err
		}
		sources = append(sources, source{Endpoint: endpoint})
	}
	dev, err := ReadDev(cmp.Or(f.Getenv(EnvDataDir), ".forgerun"))
	switch {
	case errors.Is(err, errNoDev):
		missing = err.Error()
	case err != nil:
		return nil, "", err
	default:
		sources = append(sources, source{Endpoint{dev.URL, dev.APIKey, dev.AdminURL, dev.AdminToken}, false})
	}
	return sources, missing, nil
}

// namedToken matches the name and colon before a token, such as "ann:".
var namedToken = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,31}:`)

// FirstToken returns the first token of FORGERUN_ADMIN_TOKEN, without its name.
func FirstToken(list string) string {
	first, _, _ := strings.Cut(list, ",")
	return first[len(namedToken.FindString(first)):]
}

// String omits credentials.
func (p Endpoint) String() string { return fmt.Sprintf("%s, %s", p.URL, p.AdminURL) }
