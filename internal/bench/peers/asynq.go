package main

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
)

type asynqPeer struct {
	address asynq.RedisConnOpt
	client  *asynq.Client
}

func newAsynq(_ context.Context, url string) (peer, error) {
	address, err := asynq.ParseRedisURI(url)
	if err != nil {
		return nil, err
	}
	client := asynq.NewClient(address)
	return asynqPeer{address, client}, client.Ping()
}

func (p asynqPeer) insert(ctx context.Context) error {
	_, err := p.client.EnqueueContext(ctx, asynq.NewTask("work", []byte(payload)))
	return err
}

func (p asynqPeer) insertBatch(context.Context) error {
	return errors.New("asynq enqueues one task at a time")
}

func (p asynqPeer) work(_ context.Context, workers int, done func()) (stop func(context.Context) error, err error) {
	server := asynq.NewServer(p.address, asynq.Config{Concurrency: workers, LogLevel: asynq.FatalLevel})
	err = server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done()
		return nil
	}))
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { server.Shutdown(); return nil }, nil
}

func (p asynqPeer) close() { _ = p.client.Close() }
