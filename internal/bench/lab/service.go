package lab

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/bench/loadgen"
	"github.com/forgerun/forgerun/job"
)

// StartService starts the service on a free address, and on another one if
// that was taken meanwhile. The address is chosen here since not every log level shows it.
func (l *Lab) StartService(ctx context.Context, d *Database, o Options) (sys System, err error) {
	for range 5 {
		if sys, err = l.tryService(ctx, d, o); !errors.Is(err, errAddressTaken) {
			break
		}
		_ = sys.API.Stop() // it has ended by itself
		sys.API = nil
	}
	return sys, err
}

func (l *Lab) tryService(ctx context.Context, d *Database, o Options) (System, error) {
	address, err := freeAddress()
	if err != nil {
		return System{}, err
	}
	env := append([]string{
		"FORGERUN_DATABASE_URL=" + d.URL + "&pool_max_conns=24", "FORGERUN_REDIS_URL=" + d.RedisURL,
		"FORGERUN_HTTP_ADDR=" + address, "FORGERUN_ADMIN_ADDR=127.0.0.1:0", "FORGERUN_OPEN_REGISTRATION=true",
		"FORGERUN_RATE_LIMIT_PER_MINUTE=1000000000", "FORGERUN_TIME_SCALE=0", fmt.Sprintf("FORGERUN_WORKER_CONCURRENCY=%d", o.Slots),
		"FORGERUN_MASTER_KEY=" + base64.StdEncoding.EncodeToString(make([]byte, 32)), "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true",
		"FORGERUN_PUBLIC_URL=http://127.0.0.1",
	}, o.Env...)
	base := "http://" + address
	api, err := Launch(cmp.Or(o.Program, l.program), env, "api")
	if err != nil {
		return System{}, err
	}
	sys := System{Base: base, Target: loadgen.Target{URL: base + "/v1/jobs"}, Env: env, API: api}
	sys.StartWorker = func() (*Program, error) {
		const alive = "SELECT count(*) FROM workers WHERE state = 'ALIVE'"
		before, err := d.Number(ctx, alive)
		if err != nil {
			return nil, err
		}
		w, err := Launch(cmp.Or(o.Program, l.program), env, "worker")
		if err != nil {
			return nil, err
		}
		return w, w.Until(func() bool {
			now, err := d.Number(ctx, alive)
			return err == nil && now > before
		})
	}
	err = api.Until(func() bool {
		sys.Key, err = register(ctx, sys.Base)
		return err == nil
	})
	return sys, err
}

// freeAddress is one without a listener at the moment.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// register makes a client and its key.
func register(ctx context.Context, base string) (key string, err error) {
	c, err := client.New(client.Config{URL: base, MaxTries: 1})
	if err != nil {
		return "", err
	}
	id, err := c.CreateClient(ctx)
	if err != nil {
		return "", err
	}
	made, err := c.CreateKey(ctx, id, false)
	if err != nil {
		return "", err
	}
	return made.APIKey, nil
}

// Catalogue defines jobs as the service does by default.
var Catalogue = job.Catalogue{Kinds: job.Kinds(), MaxRuntime: 2 * time.Minute}

// Launch starts another role of the service beside a system.
func (l *Lab) Launch(sys System, role string) (*Program, error) {
	return Launch(l.program, sys.Env, role)
}
