// Package view contains the JSON types that the client API and the operator API share. A type that only one API uses is in that API's
// package. The JSON members have the names from the OpenAPI documents.
package view

// OrNull returns nil for the zero value.
func OrNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}
