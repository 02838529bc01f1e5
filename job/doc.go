// Package job is the domain of ForgeRun: states and the one transition table,
// the work-kind catalogue as data, definitions made from a seed, attempts and
// backoff, events, failures, outcome documents, and the errors that every
// other package speaks in.
//
// It imports the standard library alone, reads no clock and draws no
// randomness: time and random numbers come in as arguments. Nothing that
// knows a database, a queue or HTTP will ever live here.
package job
