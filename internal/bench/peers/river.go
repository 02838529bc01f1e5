package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// poolSize is how many connections River gets: as many as ForgeRun's processes together.
const poolSize = 48

// work is what a job is.
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

type riverPeer struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx] // inserts alone
}

func newRiver(ctx context.Context, url string) (peer, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: quiet})
	return riverPeer{pool, client}, err
}

// quiet logs nothing: what it costs would be counted.
var quiet = slog.New(slog.DiscardHandler)

func (p riverPeer) insert(ctx context.Context) error {
	_, err := p.client.Insert(ctx, work{payload}, nil)
	return err
}

func (p riverPeer) insertBatch(ctx context.Context) error {
	batch := make([]river.InsertManyParams, batchSize)
	for i := range batch {
		batch[i].Args = work{payload}
	}
	_, err := p.client.InsertMany(ctx, batch)
	return err
}

// work has the workers look for jobs again a millisecond after they found some: at its
// default of 100 ms River would be limited by that, not by what it takes.
func (p riverPeer) work(ctx context.Context, workers int, done func()) (stop func(context.Context) error, err error) {
	registered := river.NewWorkers()
	river.AddWorker(registered, &worker{done: done})
	client, err := river.NewClient(riverpgxv5.New(p.pool), &river.Config{
		Logger: quiet, Workers: registered, FetchCooldown: time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers}},
	})
	if err == nil {
		err = client.Start(ctx)
	}
	if err != nil {
		return nil, err
	}
	return client.Stop, nil
}

func (p riverPeer) close() { p.pool.Close() }
