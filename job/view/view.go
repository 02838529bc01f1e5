// Package view has the JSON forms that the client API and the operator API share. Those of one API alone are in its
// package. The names of the members are those of the APIs' documents.
package view

// OrNull makes the absent value null.
func OrNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
