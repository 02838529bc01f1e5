package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/app/delivery"
	"github.com/forgerun/forgerun/app/testbed"
	"github.com/forgerun/forgerun/internal/cli/command"
	"github.com/forgerun/forgerun/internal/lifecycle"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/consumer"
	"github.com/forgerun/forgerun/tasks/ratelimit"
	"github.com/forgerun/forgerun/verdict/fault"
	"github.com/forgerun/forgerun/webhook"
)

func (p *process) guard() *webhook.Guard { return webhook.NewGuard(p.cfg.WebhookAllowPrivate) }

// origin returns the value of the WebHook-Request-Origin header, or "" if receivers need not consent.
func (p *process) origin() string {
	if !p.cfg.WebhookChallenge {
		return ""
	}
	return webhook.Origin(p.cfg.PublicURL)
}

// newWebhooks returns the service that creates and changes webhooks. Without a master key no webhook can be registered. If the master key
// cannot decrypt the stored signing keys, the process stops.
func (p *process) newWebhooks(failed chan<- error) *delivery.Webhooks {
	d := p.webhooksDeps()
	if p.cfg.WebhookChallenge {
		d.Challenge = webhook.NewChallenge(webhook.ChallengeConfig{Origin: p.origin(), Version: version, Guard: p.guard()}).Ask
	}
	if vault, err := webhook.NewVault(p.cfg.MasterKey); err == nil {
		d.NewSecret = vault.NewSecret
		fits := func(ctx context.Context) error {
			keys, err := p.store.SigningKeys(ctx)
			if err != nil {
				return err
			}
			return vault.Check(keys)
		}
		check := p.loop("master key", func(ctx context.Context) {
			if err := p.untilStorageAnswers(ctx, fits); err != nil && ctx.Err() == nil {
				failed <- err
			}
		})
		_ = p.parts.Start(context.Background(), check) // the start of a loop cannot fail
	}
	return delivery.NewWebhooks(d)
}

func (p *process) webhooksDeps() delivery.WebhooksDeps {
	return delivery.WebhooksDeps{
		Store: p.store, Targets: p.guard().Check, Queue: p.queue, Subscribers: p.subscribers, Log: p.log,
		Clock: p.store.Now,
	}
}

// directoryAge is the maximum age of the cached published keys. Five seconds are short enough, because a new key signs ten minutes after
// its publication.
const directoryAge = 5 * time.Second

// newDirectory returns a function that returns the published signing keys. It caches them, because anyone may request them without an API
// key.
func (p *process) newDirectory() func(context.Context) ([]byte, error) {
	var mu sync.Mutex
	var known []byte
	var readAt time.Time
	return func(ctx context.Context) ([]byte, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != nil && time.Since(readAt) < directoryAge {
			return known, nil
		}
		keys, err := p.store.SigningKeys(ctx)
		if err != nil {
			return nil, err
		}
		directory, err := webhook.Directory(keys)
		if err != nil {
			return nil, err
		}
		known, readAt = directory, time.Now()
		return known, nil
	}
}

// rateWait is how long a delivery waits for Redis' answer about the rate limit. If Redis does not answer in time, the process applies the
// limit to its own deliveries.
const rateWait = 2 * time.Second

// startDeliverer waits until there is a key to sign with, and begins to deliver.
func (p *process) startDeliverer(ctx context.Context) (failed <-chan error, err error) {
	vault, err := webhook.NewVault(p.cfg.MasterKey)
	if err != nil {
		return nil, fmt.Errorf("FORGERUN_MASTER_KEY: %w", err)
	}
	keys := webhook.NewKeyring(vault, p.store)
	keys.Log = p.log
	if err := p.untilStorageAnswers(ctx, keys.Ensure); err != nil {
		return nil, err
	}
	sender := webhook.NewSender(webhook.SenderConfig{
		PublicURL: p.cfg.PublicURL, Origin: p.origin(), Version: version, Timeout: p.cfg.WebhookTimeout, Guard: p.guard(), Log: p.log,
	}, keys)
	var sends delivery.Sender = sender
	limit := p.cfg.WebhookTimeout
	if p.cfg.TestBed {
		sends = &testbed.Deliveries{Bed: p.testbed, Sender: sender, Log: p.log}
		limit += fault.DeliveryExtra
	}
	rate := ratelimit.New(p.redis, ratelimit.Config{Name: "deliveries", PerMinute: p.cfg.WebhookClientRate, Wait: rateWait})
	w := delivery.NewWorker(delivery.WorkerConfig{
		Concurrency: p.cfg.WebhookConcurrency, Timeout: limit, Rate: rate.Allow, Storage: p.storage.AllowUnits, Tracer: p.tracer,
		Clock: p.clock, Policy: job.DeliveryPolicy{MaxRetries: p.cfg.WebhookMaxRetries, Backoff: p.cfg.WebhookBackoff},
	}, p.store, sends, p.notifier, p.metrics, p.log)
	fetching := consumer.NewDeliveries(p.redis, p.consumer(delivery.HandlersOf(p.cfg.WebhookConcurrency)), w.Handle)
	err = p.parts.Start(ctx,
		p.loop("signing keys", keys.Run),
		lifecycle.Close("sender", sender.Close),
		lifecycle.Part{Name: "rate of deliveries", Start: begin(rate.Start), Stop: rate.Stop, Grace: closeGrace},
		lifecycle.Part{
			Name: "delivery consumer", Grace: limit + closeGrace,
			Start: func(context.Context) error { return fetching.Start(context.Background()) },
			// Stop taking tasks, let pending sends end, and release the other tasks.
			Stop: func(ctx context.Context) error {
				fetching.Quiet()
				w.Stop(ctx)
				return withOwnTimeout(fetching.Stop)
			},
		},
	)
	if err == nil {
		p.log.Info("delivering", "concurrency", p.cfg.WebhookConcurrency)
	}
	return nil, err
}

// untilStorageAnswers repeats an action while storage is down. It stops at an error that is not a *job.Error, and returns that error.
func (p *process) untilStorageAnswers(ctx context.Context, what func(context.Context) error) error {
	const pause = time.Second
	for {
		err := what(ctx)
		var known *job.Error
		if err == nil || !errors.As(err, &known) {
			return err
		}
		p.log.Warn("the signing keys cannot be read yet; trying again", "action", "refresh_signing_keys", errorFields(err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *program) rotateCommand() *cobra.Command {
	leaked := false
	c := command.New("rotate-signing-key", "Create the next key for signing deliveries",
		func(c *cobra.Command, _ []string) error { return p.rotateSigningKey(c.Context(), leaked) })
	c.Flags().BoolVar(&leaked, "leaked", false, "the new key signs immediately, and all other keys become invalid")
	return c
}

func (p *program) rotateSigningKey(ctx context.Context, leaked bool) error {
	wrong := func(err error) error { return &command.Exit{Code: command.WrongUsage, Err: err} }
	cfg, err := LoadConfig("rotate-signing-key", p.getenv)
	if err != nil {
		return wrong(err)
	}
	vault, err := webhook.NewVault(cfg.MasterKey)
	if err != nil {
		return wrong(err)
	}
	store, err := repo.Open(repo.Config{URL: cfg.DatabaseURL, Timeout: cfg.DBTimeout, ApplicationName: "forgerun rotate-signing-key",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer store.Close()
	keyring := webhook.NewKeyring(vault, store)
	if err := keyring.Rotate(ctx, leaked); err != nil {
		return err
	}
	keys, err := store.SigningKeys(ctx)
	if err != nil {
		return err
	}
	for _, k := range keys {
		until := "without an end"
		if k.RetiresAt != nil {
			until = "until " + k.RetiresAt.Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(p.stdout, "%s  signs from %s, and is published %s\n", k.KID, k.SignsFrom.Format(time.RFC3339), until)
	}
	return nil
}
