// Package webhook sends one delivery: it renders the message, signs it, guards
// the address, sends the request and classifies the answer. It also keeps the
// secrets and keys to sign with. It never sleeps for a retry and never
// schedules: what follows an attempt is decided elsewhere.
package webhook
