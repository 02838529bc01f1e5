// Package clients has the use cases of clients and their API keys (API contract, sections 7 and 14).
package clients

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/singleflight"

	"github.com/forgerun/forgerun/app"
	"github.com/forgerun/forgerun/internal/operators"
	"github.com/forgerun/forgerun/internal/telemetry"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
)

// Config has the settings of clients and their keys.
type Config struct {
	Operators        operators.Tokens
	OpenRegistration bool          // allow anyone to create a client and its first key
	TTL              time.Duration // lifetime of new keys
}

const (
	registrationWindow = 10 * time.Minute   // time after a client's creation in which anyone may create its first key
	overlap            = 10 * time.Minute   // how long a replaced key stays valid
	renewWindow        = 7 * 24 * time.Hour // how long an expired key can be renewed
)

// A client may have maxKeys valid keys with full scope, and maxKeys valid keys with a lesser scope.
const maxKeys = 10

// Service creates clients, and creates, changes and authenticates their API keys.
type Service struct {
	cfg    Config
	store  *repo.Store
	clock  app.Clock
	log    *slog.Logger
	memory memory
	uses   singleflight.Group // merges concurrent writes of the first use of a key, by key id
}

// New returns the service. Run WatchKeys to remove changed keys from the cache.
func New(cfg Config, store *repo.Store, clock app.Clock, log *slog.Logger) *Service {
	return &Service{cfg: cfg, store: store, clock: clock, log: log, memory: newMemory()}
}

// CreateClient creates a client (API contract, section 8).
func (k *Service) CreateClient(ctx context.Context, caller job.Caller) (job.Client, error) {
	if !caller.Admin && !k.cfg.OpenRegistration {
		if caller.Anonymous() {
			return job.Client{}, errNoCredentials
		}
		return job.Client{}, errAdminOnly
	}
	client, err := k.store.InsertClient(ctx, job.ID(uuid.New()))
	if err == nil {
		app.DescribeKey(trace.SpanFromContext(ctx), client.ID, "")
		k.logChange(ctx, "client created", "create_client", client.ID)
	}
	return client, err
}

// NameClient sets a client's name. "" removes the name.
func (k *Service) NameClient(ctx context.Context, client job.ID, name string) error {
	exists, err := k.store.NameClient(ctx, client, name)
	switch {
	case err != nil:
		return err
	case !exists:
		return errNoClient
	}
	k.logChange(ctx, "client named", "name_client", client)
	return nil
}

func (k *Service) logChange(ctx context.Context, message, action string, client job.ID, more ...slog.Attr) {
	app.AfterCommit(ctx, func() {
		attrs := []slog.Attr{
			slog.String("action", action), slog.String("request_id", telemetry.RequestOf(ctx)), slog.String("client_id", client.String()),
		}
		k.log.LogAttrs(ctx, slog.LevelInfo, message, append(attrs, more...)...)
	})
}
