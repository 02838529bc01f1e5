// Package load drives a scenario against a running service: it sends what the
// plan says when the plan says it, plays the client's part in each job (cancels,
// retries, duplicates), watches what becomes of the jobs, and writes down what it
// sees. It judges nothing.
package load
