// Package handlers is the HTTP face of ForgeRun, on Fiber: one table of
// routes, strict decoding of requests, the shapes of answers, and the only
// place where errors become problem documents (RFC 9457).
//
// It knows the domain and the few use cases it declares itself. No rule about
// jobs is decided here, and no Fiber type leaves the package.
package handlers
