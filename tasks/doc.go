// Package tasks holds the adapters to Redis, a package for each concern:
//
//   - redisconn: the shared connection, its health, logs and metrics
//   - queue: writes to the asynq queues and reads their state
//   - consumer: takes tasks from the queues
//   - notify: events, progress and cancel signals by pub/sub
//   - ratelimit: counts requests for the rate limit
//
// The packages do not depend on Postgres or HTTP. This package contains only tests that use the subpackages together.
package tasks
