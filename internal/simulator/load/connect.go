package load

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/client"
)

// userAgent names the simulator to the service.
const userAgent = "forgerun-simulator"

// serviceURL checks the address of a service, and returns it without a trailing /v1.
func serviceURL(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is not the address of a service: give --url such as http://127.0.0.1:8080", address)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return u.String(), nil
}

// Connect checks with one try that the service accepts the key, by reading a job that does not exist, or without a key that it lets a
// client register. It returns the address without /v1; its error is one sentence with a hint.
func Connect(ctx context.Context, address, key string) (string, error) {
	address, err := serviceURL(address)
	if err != nil {
		return "", err
	}
	c, err := client.New(client.Config{URL: address, Key: key, UserAgent: userAgent, MaxTries: 1})
	if err != nil {
		return "", err
	}
	if key != "" {
		_, err = c.Job(ctx, uuid.NewString())
	} else {
		_, _, err = newClient(ctx, c)
	}
	if problem, ok := errors.AsType[*client.Problem](err); err == nil || ok && problem.Code == "RFA_JOB_NOT_FOUND" {
		return address, nil
	}
	return "", fmt.Errorf("the service at %s cannot be used: %w; is it running, are --url and --key right, "+
		"and without a key, does it let clients register?", address, err)
}

// newClient registers a client of the service, and returns its API key.
func newClient(ctx context.Context, c *client.Client) (id, key string, err error) {
	if id, err = c.CreateClient(ctx); err != nil {
		return "", "", err
	}
	made, err := c.CreateKey(ctx, id, false)
	if err != nil {
		return "", "", err
	}
	return id, made.APIKey, nil
}
