// Package api has the types of the client API's requests and answers, made of its OpenAPI document.
package api

//go:generate go run -C ../../tools ./apitypes ../handlers/api/types.yaml
