// Package tasks holds the adapters to Redis, a package for each concern:
//
//   - redisconn: the connection that all share, its health, logs and metrics
//   - queue: writes to the asynq queues and reads their state
//   - consumer: takes tasks from the queues
//   - notify: events, progress and cancel signals by pub/sub
//   - ratelimit: counts requests for the rate limit
//
// The packages do not depend on Postgres or HTTP. Only the handler of the dashboard exposes types of asynq or Redis. This package itself
// has tests that use all of the packages, with every kind of Redis.
package tasks
