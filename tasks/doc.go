// Package tasks is the Redis side: it hands tasks to the asynq queue and takes
// them out again, tells workers of cancelled jobs and watchers of news, keeps
// the progress of running jobs and the sentinel by which a lost queue is
// noticed, and counts requests for the rate limit.
//
// Everything in Redis is a hint. A task says "look at job J, attempt N"; it may
// come late, twice, or never, and nothing here decides what becomes of a job.
// So nothing here fails a caller because Redis is slow or gone: what could not
// be sent is counted, dropped, and sent again by whoever reads the truth.
//
// No asynq or Redis type leaves this package, and it knows nothing of Postgres
// or HTTP, save the dashboard's handler.
package tasks
