// Package view contains the JSON types that the client API and the operator API share. Types of only one API are in its package. Members
// have the names of the APIs' documents.
package view

// OrNull returns nil for the zero value.
func OrNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
