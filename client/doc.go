// Package client is the Go client of ForgeRun: the HTTP API but for ranges of
// results, and the client's part of draft-ratnawat-httpapi-async-problem-details.
//
// A Client is safe for use by several goroutines. Each call takes a context
// and answers with a typed value or an error, which is a *Problem (the
// service's own answer), a *NoAnswerError (no complete answer came), an
// *UnexpectedError (an answer that is not ForgeRun's) or the context's error.
//
// Requests that are safe to repeat are repeated: those that read, those that
// delete and cancel, and submissions, which get an idempotency key of their own
// when the caller gives none. Job and webhook ids are opaque.
//
// The package imports the standard library only, and nothing of the service:
// what it knows of ForgeRun is what the API's documents say.
package client
