// Package api has the request and response types of the client API, generated from its OpenAPI document.
package api

//go:generate go run -C ../../tools ./apitypes ../handlers/api/types.yaml
