// Package loadgen submits jobs as fast as they are accepted (Closed) or at a
// constant rate (OpenLoop). The simulator's generator (internal/simulator/load)
// decodes each answer and keeps a history, for which it takes three times the CPU
// of a bare fasthttp client (docs/performance.md); on the cores of the service whose
// maximum is measured here, that would be taken for the service's own limit.
package loadgen
