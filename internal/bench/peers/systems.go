package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type work struct {
	Text string `json:"text"`
}

func (work) Kind() string { return "work" }

type worker struct {
	river.WorkerDefaults[work]
	done func()
}

func (w *worker) Work(context.Context, *river.Job[work]) error {
	w.done()
	return nil
}

// newRiver allows River as many connections as all ForgeRun processes use together.
func newRiver(ctx context.Context, url string) (peer, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return peer{}, err
	}
	config.MaxConns = 48
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return peer{}, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return peer{}, err
	}
	quiet := slog.New(slog.DiscardHandler)
	inserter, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
	return peer{
		insert: func(ctx context.Context) error {
			_, err := inserter.Insert(ctx, work{payload}, nil)
			return err
		},
		insertBatch: func(ctx context.Context) error {
			batch := make([]river.InsertManyParams, batchSize)
			for i := range batch {
				batch[i].Args = work{payload}
			}
			_, err := inserter.InsertMany(ctx, batch)
			return err
		},
		// FetchCooldown is 1 ms, because River's default of 100 ms would limit its throughput.
		work: func(ctx context.Context, done func()) (func(context.Context) error, error) {
			registered := river.NewWorkers()
			river.AddWorker(registered, &worker{done: done})
			client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
				Logger: quiet, Workers: registered, FetchCooldown: time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
				Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
			})
			if err != nil {
				return nil, err
			}
			return client.Stop, client.Start(ctx)
		},
	}, err
}

func newAsynq(_ context.Context, url string) (peer, error) {
	address, err := asynq.ParseRedisURI(url)
	if err != nil {
		return peer{}, err
	}
	client := asynq.NewClient(address)
	return peer{
		insert: func(ctx context.Context) error {
			_, err := client.EnqueueContext(ctx, asynq.NewTask("work", []byte(payload)))
			return err
		},
		insertBatch: func(context.Context) error { return errors.New("asynq enqueues one task at a time") },
		work: func(_ context.Context, done func()) (func(context.Context) error, error) {
			server := asynq.NewServer(address, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
			return func(context.Context) error { server.Shutdown(); return nil },
				server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
					done()
					return nil
				}))
		},
	}, client.Ping()
}
