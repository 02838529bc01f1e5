// Package telemetry is how the other packages make themselves seen: it makes
// their metrics, and begins, continues and ends their spans. What is counted
// and traced is decided where it happens; where it is sent is decided by
// package monitoring.
package telemetry
