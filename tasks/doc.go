// Package tasks holds the adapters to Redis, a package for each concern:
//
//   - redisconn: the connection that all share, its health, logs and metrics
//   - queue: what goes into the asynq queues, and what is there
//   - consumer: what comes out of them
//   - notify: events, progress and cancel signals by pub/sub
//   - ratelimit: counts requests for the rate limit
//
// They expose no asynq or Redis type except in the dashboard's handler, and know nothing of Postgres or HTTP. This package itself has the
// tests that use all of them, on every kind of Redis.
package tasks
