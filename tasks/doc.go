// Package tasks is the Redis side: it hands tasks to the asynq queues and takes
// them out again, tells workers of cancelled jobs and watchers of news, keeps the
// progress of running jobs and the sentinel by which a lost queue is noticed,
// appends outcomes to a stream, and counts requests for the rate limit.
//
// Everything in the queues is a hint. A task says "look at job J, attempt N" or
// "look at what client C is to be sent"; it may come late, twice, or never, and
// nothing here decides what becomes of a job or a delivery.
// So nothing here fails a caller because Redis is slow or gone: what could not
// be sent is counted, dropped, and sent again by whoever reads the truth.
//
// No asynq or Redis type leaves this package, and it knows nothing of Postgres
// or HTTP, save the dashboard's handler.
package tasks
