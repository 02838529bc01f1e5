package access

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// Contexts are addresses and credentials that a user has saved under names. Only this user can read the file that stores them.
type Contexts struct {
	Current string              `yaml:"current,omitempty"`
	All     map[string]Endpoint `yaml:"contexts,omitempty"`

	path string
}

// LoadContexts reads the file. It refuses a file that other users can read, because the file contains keys.
func LoadContexts(getenv func(string) string) (*Contexts, error) {
	p := &Contexts{path: contextsPath(getenv)}
	info, err := os.Stat(p.path)
	if errors.Is(err, fs.ErrNotExist) || p.path == "" {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	// On Windows, file modes do not show access rights, so the check is skipped.
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, command.Usagef("%s contains keys, and other users can read it (mode %04o): run chmod 600 %s", p.path, mode, p.path)
	}
	content, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	if err := yaml.Unmarshal(content, p); err != nil {
		// The YAML library's error is left out, because it quotes the file's content, which includes keys.
		return nil, command.Usagef("%s is not a valid file of contexts; 'forgerun help contexts-file' shows an example", p.path)
	}
	return p, nil
}

// contextsPath returns the path of the contexts file; "" if there is no configuration folder.
func contextsPath(getenv func(string) string) string {
	if path := getenv(EnvContexts); path != "" {
		return path
	}
	folder := getenv("XDG_CONFIG_HOME")
	if folder == "" {
		home := cmp.Or(getenv("HOME"), getenv("USERPROFILE"))
		if home == "" {
			return ""
		}
		folder = filepath.Join(home, ".config")
	}
	return filepath.Join(folder, "forgerun", "contexts.yaml")
}

// Path returns the path of the contexts file.
func (p *Contexts) Path() string { return p.path }

// Names returns the names of all contexts, sorted.
func (p *Contexts) Names() []string { return slices.Sorted(maps.Keys(p.All)) }

// Find returns the endpoint of a context.
func (p *Contexts) Find(name string) (Endpoint, error) {
	endpoint, ok := p.All[name]
	if !ok {
		known := cmp.Or(strings.Join(p.Names(), ", "), "none")
		return Endpoint{}, command.Usagef("there is no context %q in %s; known contexts: %s", name, p.path, known)
	}
	return endpoint, nil
}

// Save writes the file.
func (p *Contexts) Save() error {
	if p.path == "" {
		return command.Usagef("the folder for contexts is unknown: set HOME, XDG_CONFIG_HOME or %s", EnvContexts)
	}
	content, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
		return err
	}
	if err := WriteFile(p.path, content); err != nil {
		return fmt.Errorf("write the contexts: %w", err)
	}
	return nil
}

// WriteFile writes a file atomically. Only the owner can read it.
func WriteFile(path string, content []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

var errNoDev = errors.New("none is running")

// Dev has the addresses and credentials that a running forgerun dev writes into its data folder. Other commands read them.
type Dev struct {
	URL         string `json:"url"`
	AdminURL    string `json:"admin_url"`
	AdminToken  string `json:"admin_token,omitempty"`
	PID         int    `json:"pid"`
	ClientID    string `json:"client_id"`
	APIKey      string `json:"api_key"`
	DatabaseURL string `json:"database_url"`
	RedisURL    string `json:"redis_url"`
}

// DevFile returns the path of the file in which forgerun dev stores its addresses and credentials.
func DevFile(dataDir string) string { return filepath.Join(dataDir, "dev.json") }

// ReadDev reads DevFile from a data folder. It fails if the process that wrote the file has ended.
func ReadDev(dataDir string) (dev Dev, err error) {
	path := DevFile(dataDir)
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Dev{}, errNoDev
	case err != nil:
		return Dev{}, fmt.Errorf("%w: cannot read the file that it writes: %w", errNoDev, err)
	}
	if err := json.Unmarshal(content, &dev); err != nil {
		return Dev{}, fmt.Errorf("%w: %s cannot be read: %w", errNoDev, path, err)
	}
	if dev.PID <= 0 || hasEnded(dev.PID) {
		return Dev{}, fmt.Errorf("%w: process %d, which wrote %s, has ended", errNoDev, dev.PID, path)
	}
	return dev, nil
}

func hasEnded(pid int) bool {
	process, err := os.FindProcess(pid)
	if err == nil {
		err = process.Signal(syscall.Signal(0))
	}
	return errors.Is(err, os.ErrProcessDone)
}
