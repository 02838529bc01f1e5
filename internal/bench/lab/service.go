package lab

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/devstack"
	"github.com/forgerun/forgerun/job"
)

// StartService starts the service on a free address, and on another one if that was
// taken meanwhile. It does not choose its own: not every log level shows it.
func (l *Lab) StartService(ctx context.Context, d *Database, o Options) (sys System, err error) {
	for range 5 {
		if sys, err = l.tryService(ctx, d, o); !errors.Is(err, errAddressTaken) {
			break
		}
	}
	return sys, err
}

func (l *Lab) tryService(ctx context.Context, d *Database, o Options) (sys System, err error) {
	address, err := devstack.FreeAddress()
	if err != nil {
		return sys, err
	}
	sys.Base = "http://" + address
	sys.URL = sys.Base + "/v1/jobs"
	sys.Env = append([]string{
		"FORGERUN_DATABASE_URL=" + d.URL + "&pool_max_conns=24", "FORGERUN_REDIS_URL=" + d.RedisURL,
		"FORGERUN_HTTP_ADDR=" + address, "FORGERUN_ADMIN_ADDR=127.0.0.1:0", "FORGERUN_OPEN_REGISTRATION=true",
		"FORGERUN_RATE_LIMIT_PER_MINUTE=1000000000", "FORGERUN_MAX_SCHEDULE_AHEAD=876000h",
		"FORGERUN_CLIENT_MAX_ACTIVE=1000000000", "FORGERUN_CLIENT_MAX_QUEUED=1000000000", "FORGERUN_TIME_SCALE=0",
		fmt.Sprintf("FORGERUN_WORKER_CONCURRENCY=%d", o.Slots),
		"FORGERUN_MASTER_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)), "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true",
		"FORGERUN_PUBLIC_URL=http://127.0.0.1",
	}, o.Env...)
	program := cmp.Or(o.Program, l.program)
	sys.StartWorker = func() (*Program, error) {
		const alive = "SELECT count(*) FROM workers WHERE state = 'ALIVE'"
		before, err := d.Number(ctx, alive)
		if err != nil {
			return nil, err
		}
		w, err := Launch(program, sys.Env, "worker")
		if err != nil {
			return nil, err
		}
		return w, w.Until(ctx, func() bool {
			now, err := d.Number(ctx, alive)
			return err == nil && now > before
		})
	}
	if sys.API, err = Launch(program, sys.Env, "api"); err != nil {
		return sys, err
	}
	err = sys.API.Until(ctx, func() bool { return sys.register(ctx) == nil })
	return sys, err
}

// register makes a client and its key.
func (s *System) register(ctx context.Context) error {
	c, err := client.New(client.Config{URL: s.Base, MaxTries: 1})
	if err != nil {
		return err
	}
	id, err := c.CreateClient(ctx)
	if err != nil {
		return err
	}
	key, err := c.CreateKey(ctx, id, false)
	if err != nil {
		return err
	}
	s.Key = key.APIKey
	s.Client, err = uuid.Parse(id)
	return err
}

// Catalogue defines jobs as the service does by default.
var Catalogue = job.Catalogue{Kinds: job.Kinds(), MaxRuntime: 2 * time.Minute}

// Launch starts another role of the service beside a system.
func (l *Lab) Launch(sys System, role string) (*Program, error) {
	return Launch(l.program, sys.Env, role)
}
