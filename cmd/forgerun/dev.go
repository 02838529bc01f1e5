package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/natefinch/lumberjack.v2"

	"github.com/forgerun/forgerun/internal/cli/access"
	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/lifecycle"
	local "github.com/forgerun/forgerun/internal/stack"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/monitoring"
	"github.com/forgerun/forgerun/repo"
)

// runDev runs all roles in this process. It starts the stores that are not configured: Postgres, Redis or both.
func (p *program) runDev(ctx context.Context, cfg Config) (err error) {
	if cfg.DataDir, err = filepath.Abs(cfg.DataDir); err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o755); err != nil { // Postgres and Redis may run as other users, who need access
		return fmt.Errorf("create the data folder: %w", err)
	}
	file := &lumberjack.Logger{Filename: logFile(&cfg), MaxSize: logFileMB, MaxBackups: 1}
	lines := monitoring.NewLines(file, nil)
	defer func() {
		lines.Flush()
		_ = file.Close()
	}()
	cfg.LogFile = lines
	log, err := cfg.newLogger(p.stderr)
	if err != nil {
		return err
	}
	if cfg.MasterKey == nil {
		if cfg.MasterKey, err = ownMasterKey(filepath.Join(cfg.DataDir, "master.key")); err != nil {
			return fmt.Errorf("read or create the master key: %w", err)
		}
	}
	if cfg.AdminToken == "" && !(onLoopback(cfg.HTTPAddr) && onLoopback(cfg.AdminAddr)) {
		if cfg.AdminToken, err = ownSecret(filepath.Join(cfg.DataDir, "admin.token")); err != nil {
			return fmt.Errorf("read or create the admin token: %w", err)
		}
		cfg.OwnAdminToken = true
	}
	show := screen{term.NewStatus(p.stdout, cfg.Screen.Terminal), p.stdout, cfg.Screen}
	defer show.Clear()
	stop, err := startStores(ctx, &cfg, show, log)
	defer stop()
	if err != nil {
		return explainBusy(cfg.DataDir, err)
	}
	show.progress("Bringing the database schema up to date ...")
	if err := repo.Migrate(ctx, cfg.DatabaseURL, -1); err != nil {
		return err
	}
	show.progress("Starting the API, the worker and the deliverer ...")
	return p.serve(ctx, cfg, "dev", func(p *process, ctx context.Context) (<-chan error, error) { return p.startDev(ctx, show) })
}

// logFileMB is the size in MB at which dev rotates its log. It keeps one old file.
const logFileMB = 32

func logFile(cfg *Config) string { return filepath.Join(cfg.DataDir, "dev.log") }

func (p *process) startDev(ctx context.Context, show screen) (<-chan error, error) {
	if _, err := p.startWorker(ctx); err != nil {
		return nil, err
	}
	if _, err := p.startDeliverer(ctx); err != nil {
		return nil, err
	}
	a, err := p.startAPI(ctx)
	if err != nil {
		return nil, err
	}
	login, err := a.login(ctx)
	if err != nil {
		return nil, err
	}
	remove, err := a.note(login)
	if err != nil {
		return nil, err
	}
	show.Clear()
	a.greet(show, login)
	if show.style.Terminal && term.IsTerminal(os.Stdin) {
		go greetAgain(os.Stdin, func() { a.greet(show, login) })
	}
	return a.failed, p.parts.Start(ctx, lifecycle.Close("addresses", remove))
}

func greetAgain(terminal io.Reader, greet func()) {
	term.IgnoreReads() // without this, a background process that reads the terminal would be stopped (SIGTTIN)
	for lines := bufio.NewScanner(terminal); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) == "?" {
			greet()
		}
	}
}

func ownMasterKey(path string) (decoded []byte, err error) {
	text, err := ownSecret(path)
	if err != nil {
		return nil, err
	}
	err = key(&decoded)(text)
	return decoded, err
}

func ownSecret(path string) (string, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		random := make([]byte, 32)
		_, _ = rand.Read(random) // rand.Read never fails
		content = []byte(base64.StdEncoding.EncodeToString(random))
		err = os.WriteFile(path, content, 0o600)
	}
	return strings.TrimSpace(string(content)), err
}

// startStores starts the stores that are not configured, and sets their addresses in cfg. The caller must call `stop`, even after an
// error.
func startStores(ctx context.Context, cfg *Config, show screen, log *slog.Logger) (stop func(), err error) {
	var stops []func() error
	stop = func() {
		for _, one := range slices.Backward(stops) {
			if err := one(); err != nil {
				log.Warn("a store did not stop cleanly", "action", "stop", "error_message", err.Error())
			}
		}
	}
	if cfg.DatabaseURL == "" {
		show.progress("Starting Postgres ...")
		postgres, err := startOwnPostgres(ctx, cfg, log)
		if err != nil {
			return stop, err
		}
		stops = append(stops, postgres.KeepRunning(ctx))
		cfg.DatabaseURL, cfg.StoreDirs = postgres.URL(), append(cfg.StoreDirs, postgres.Dir())
	}
	if cfg.RedisURL != "" {
		return stop, nil
	}
	show.progress("Starting Redis ...")
	redis, err := local.StartRedis(ctx, local.ServerOptions{Dir: filepath.Join(cfg.DataDir, "redis"), Logger: log})
	if err != nil {
		return stop, err
	}
	stops, cfg.RedisURL, cfg.StoreDirs = append(stops, redis.KeepRunning(ctx)), redis.URL(), append(cfg.StoreDirs, redis.Dir())
	return stop, nil
}

type login struct {
	ClientID string `json:"client_id"`
	APIKey   string `json:"api_key"`
}

// login returns the stored client and key. If the key does not work, it creates both.
func (a *api) login(ctx context.Context) (login, error) {
	path := filepath.Join(a.p.cfg.DataDir, "credentials.json")
	var known login
	if content, err := os.ReadFile(path); err == nil && json.Unmarshal(content, &known) == nil {
		if caller, err := a.clients.Authenticate(ctx, known.APIKey); err == nil && caller.ClientID.String() == known.ClientID {
			return known, nil
		}
	}
	operator := job.Caller{Admin: true}
	client, err := a.clients.CreateClient(ctx, operator)
	if err != nil {
		return login{}, err
	}
	key, err := a.clients.CreateKey(ctx, operator, client.ID, false, job.ScopeAll)
	if err != nil {
		return login{}, err
	}
	fresh := login{ClientID: client.ID.String(), APIKey: key.Secret}
	return fresh, writeJSON(path, fresh)
}

// note writes the addresses of this process to a file. Call `remove` to delete the file when the process is no longer ready.
func (a *api) note(l login) (remove func(), err error) {
	path := access.DevFile(a.p.cfg.DataDir)
	err = writeJSON(path, access.Dev{
		URL: "http://" + a.addr, AdminURL: "http://" + a.p.adminAddr, AdminToken: access.FirstToken(a.p.cfg.AdminToken), PID: os.Getpid(),
		ClientID: l.ClientID, APIKey: l.APIKey, DatabaseURL: a.p.cfg.DatabaseURL, RedisURL: a.p.cfg.RedisURL,
	})
	return func() { _ = os.Remove(path) }, err
}

// writeJSON atomically writes a file that only the owner can read.
func writeJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return access.WriteFile(path, append(content, '\n'))
}

// startOwnPostgres starts a Postgres server for dev. If Postgres is not installed and --fetch is given, it downloads Postgres first.
func startOwnPostgres(ctx context.Context, cfg *Config, log *slog.Logger) (*local.Postgres, error) {
	programs := programsDir(cfg)
	options := local.ServerOptions{Dir: filepath.Join(cfg.DataDir, "postgres"), Programs: local.FetchedPrograms(programs), Logger: log}
	postgres, err := local.StartPostgres(ctx, options)
	if !errors.Is(err, local.ErrNotInstalled) {
		return postgres, err
	}
	if cfg.FetchFrom == "" {
		return nil, fmt.Errorf("%w\nWithout installing it: forgerun dev --fetch (or verdict --fetch) downloads a private copy of "+
			"Postgres %s (about 15 MB) into %s; or set FORGERUN_DATABASE_URL to a server", err, local.FetchedVersion, programs)
	}
	if options.Programs, err = local.FetchPostgres(ctx, programs, cfg.FetchFrom, log); err != nil {
		return nil, err
	}
	return local.StartPostgres(ctx, options)
}

// programsDir returns the folder for downloaded programs. The folder is outside the data folder if possible, because the verdict command
// deletes the data folder. If forgerun runs as root, Postgres runs as another user, who must be able to enter the folder.
func programsDir(cfg *Config) string {
	if os.Geteuid() == 0 {
		return "/var/lib/forgerun/programs"
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(cfg.DataDir, "programs")
	}
	return filepath.Join(cache, "forgerun")
}
