// Package tasks holds the adapters to Redis, a package for each concern:
//
//   - redisconn: the connection that all share, its health, logs and metrics
//   - queue: writes to the asynq queues and reads their state
//   - consumer: takes tasks from the queues
//   - notify: events, progress and cancel signals by pub/sub
//   - ratelimit: counts requests for the rate limit
//
// They expose no asynq or Redis types except in the dashboard's handler, and do not depend on Postgres or HTTP. This package itself has
// the tests that use all of them, with every kind of Redis.
package tasks
