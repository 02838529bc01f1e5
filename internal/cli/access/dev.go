package access

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

var errNoDev = errors.New("none runs here")

// runningDev reads what a running forgerun dev has noted in its data folder, which only its user can read.
func runningDev(getenv func(string) string) (Place, error) {
	path := filepath.Join(cmp.Or(getenv(EnvDataDir), ".forgerun"), "dev.json")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Place{}, errNoDev
	}
	if err != nil {
		return Place{}, fmt.Errorf("%w: the file of a running forgerun dev cannot be read: %w", errNoDev, err)
	}
	var dev struct {
		PID        int    `json:"pid"`
		URL        string `json:"url"`
		AdminURL   string `json:"admin_url"`
		APIKey     string `json:"api_key"`
		AdminToken string `json:"admin_token"`
	}
	if err := json.Unmarshal(content, &dev); err != nil {
		return Place{}, fmt.Errorf("%w: %s cannot be read: %w", errNoDev, path, err)
	}
	if err := syscall.Kill(dev.PID, 0); dev.PID <= 0 || errors.Is(err, syscall.ESRCH) {
		return Place{}, fmt.Errorf("%w: the one of %s, process %d, has ended", errNoDev, path, dev.PID)
	}
	return Place{URL: dev.URL, Key: dev.APIKey, AdminURL: dev.AdminURL, AdminToken: dev.AdminToken}, nil
}
