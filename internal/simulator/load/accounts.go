package load

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/history"
)

// Accounts returns the tenants that Prepare registered.
func (e *Engine) Accounts() []history.Account { return e.accounts }

// Prepare registers the tenants and their webhooks and opens their streams. It submits no jobs.
func (e *Engine) Prepare(ctx context.Context) error {
	quick, slow, err := e.clients()
	if err != nil {
		return err
	}
	for n := range e.o.Scenario.Tenants {
		a, err := e.register(ctx, n, quick, slow)
		if err != nil {
			return fmt.Errorf("register tenant %d of %d: %w", n+1, e.o.Scenario.Tenants, err)
		}
		e.accounts = append(e.accounts, a)
		if err := e.subscribe(ctx, &e.accounts[n]); err != nil {
			return fmt.Errorf("register the webhooks of tenant %d: %w", n+1, err)
		}
	}
	var background context.Context
	background, e.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := e.followClock(ctx, background); err != nil {
		return fmt.Errorf("read the clock of the service: %w", err)
	}
	return e.openStreams(ctx, background)
}

const (
	requestTimeout = 15 * time.Second
	connections    = 256 // maximum number of open connections; latencies include the wait for a connection
)

func (e *Engine) clients() (quick, slow *client.Client, err error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.MaxConnsPerHost = connections, connections
	quick, err = client.New(client.Config{URL: e.o.URL, Key: e.o.Key, UserAgent: userAgent, MaxTries: 1, Timeout: e.timeout,
		HTTP: &http.Client{Transport: transport}})
	if err != nil {
		return nil, nil, err
	}
	slow, err = client.New(client.Config{URL: e.o.URL, Key: e.o.Key, UserAgent: userAgent, MaxTries: 8})
	return quick, slow, err
}

func (e *Engine) register(ctx context.Context, n int, quick, slow *client.Client) (history.Account, error) {
	a := history.Account{Tenant: n, Client: slow, Quick: quick}
	if e.o.Key != "" {
		return a, nil
	}
	id, key, err := newClient(ctx, slow)
	if err == nil {
		a.ClientID, a.Quick, a.Client = id, quick.WithKey(key), slow.WithKey(key)
	}
	return a, err
}

func (e *Engine) subscribe(ctx context.Context, a *history.Account) error {
	if e.o.Receiver == nil {
		return nil
	}
	for _, r := range e.o.Scenario.Receivers {
		if r.Callback {
			continue
		}
		err := e.o.Receiver.Register(a.Tenant, r.Name, func(url string) (id, secret string, err error) {
			w, err := a.Client.CreateWebhook(ctx, client.WebhookRequest{URL: url, Events: r.Events})
			if err != nil {
				return "", "", err
			}
			a.Webhooks = append(a.Webhooks, history.Webhook{Tenant: a.Tenant, ID: w.WebhookID, Events: r.Events})
			return w.WebhookID, w.Secret, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const streamPatience = 15 * time.Second

func (e *Engine) openStreams(ctx, streams context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, streamPatience,
		fmt.Errorf("the event stream of a tenant was not connected within %s", streamPatience))
	defer cancel()
	var first []chan struct{}
	for _, a := range e.accounts {
		for n := range e.o.Scenario.Readers.Streams {
			if n > 0 {
				e.background.Go(func() { e.readSlowly(streams, a, 0) })
				continue
			}
			connected := make(chan struct{})
			first = append(first, connected)
			e.background.Go(func() { e.watch(streams, a, func() { close(connected) }) })
		}
		for range e.o.Scenario.Readers.Slow {
			e.background.Go(func() { e.readSlowly(streams, a, e.o.Scenario.Readers.SlowPause) })
		}
	}
	for _, connected := range first {
		select {
		case <-connected:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Close ends the streams and the polling of the clock.
func (e *Engine) Close() {
	if e.stop != nil {
		e.stop()
		e.background.Wait()
	}
}

const userAgent = "forgerun-simulator"

// Connect checks that the service can be used. With a key, it reads a job that does not exist. Without a key, it registers a client. The
// error says what the user should check.
func Connect(ctx context.Context, address, key string) error {
	c, err := client.New(client.Config{URL: address, Key: key, UserAgent: userAgent, MaxTries: 1})
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	if key != "" {
		_, err = c.Job(ctx, uuid.NewString())
	} else {
		_, _, err = newClient(ctx, c)
	}
	if problem, ok := errors.AsType[*client.Problem](err); err == nil || ok && problem.Code == "RFA_JOB_NOT_FOUND" {
		return nil
	}
	return fmt.Errorf("cannot use the service at %s: %w; is it running, are --url and --key right, "+
		"and, if you pass no key, does it let clients register?", address, err)
}

func newClient(ctx context.Context, c *client.Client) (id, key string, err error) {
	if id, err = c.CreateClient(ctx); err != nil {
		return "", "", err
	}
	made, err := c.CreateKey(ctx, id, false)
	if err != nil {
		return "", "", err
	}
	return id, made.APIKey, nil
}
