//go:build !linux

package main

// inMemory does nothing, since only Linux reliably has an in-memory folder.
func inMemory() (remove func() error, err error) { return func() error { return nil }, nil }
