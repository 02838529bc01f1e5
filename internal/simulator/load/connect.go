package load

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/forgerun/forgerun/client"
)

// userAgent names the simulator to the service.
const userAgent = "forgerun-simulator"

// ServiceURL checks the address of a service, with or without /v1 at its end, and
// returns it without.
func ServiceURL(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%q is not the address of a service: give --url such as http://127.0.0.1:8080", address)
	}
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), "/v1")
	return u.String(), nil
}

// Connect checks with one try that the service takes the key, or lets a client
// register, and returns its address as ServiceURL does. Every error is one sentence
// that says what to change.
func Connect(ctx context.Context, address, key string) (string, error) {
	address, err := ServiceURL(address)
	if err != nil {
		return "", err
	}
	c, err := client.New(client.Config{URL: address, Key: key, UserAgent: userAgent, MaxTries: 1})
	if err != nil {
		return "", err
	}
	request, err := ask(ctx, c, key)
	problem, told := errors.AsType[*client.Problem](err)
	unexpected, other := errors.AsType[*client.UnexpectedError](err)
	lost, silent := errors.AsType[*client.NoAnswerError](err)
	denied := told && (problem.Status == http.StatusUnauthorized || problem.Status == http.StatusForbidden)
	switch {
	case err == nil || told && problem.Code == "RFA_JOB_NOT_FOUND":
		return address, nil
	case silent:
		err = fmt.Errorf("nothing answers at %s (%w): is the service running, and is --url right?", address, lost.Err)
	case denied && key != "":
		err = fmt.Errorf("the service at %s refuses the key: %s", address, answerText(err))
	case denied:
		err = fmt.Errorf("the service at %s does not let strangers register (%s): pass a key with --key", address, answerText(err))
	case told && problem.Status != http.StatusNotFound:
		err = fmt.Errorf("the service at %s is not usable now: %s answered %s", address, request, answerText(err))
	case other && unexpected.Status == http.StatusCreated:
		err = fmt.Errorf("the service at %s answered the registration without a client id or key", address)
	default:
		err = fmt.Errorf("something answers at %s, but not as ForgeRun does (%s: %s): is --url right?", address, request, answerText(err))
	}
	return "", err
}

// ask asks with a key for a job that does not exist, or without one registers a client. What counts is which error comes.
func ask(ctx context.Context, c *client.Client, key string) (request string, err error) {
	id := uuid.NewString()
	if key != "" {
		_, err = c.Job(ctx, id)
		return "GET /v1/jobs/" + id, err
	}
	request = "POST /v1/clients"
	if id, err = c.CreateClient(ctx); err == nil {
		request += "/" + id + "/keys"
		_, err = c.CreateKey(ctx, id, false)
	}
	return request, err
}

// answerText gives an answer's status with its code and detail, or its media type.
func answerText(err error) string {
	if problem, ok := errors.AsType[*client.Problem](err); ok {
		return fmt.Sprintf("%d %s (%s)", problem.Status, problem.Code, problem.Detail)
	}
	if unexpected, ok := errors.AsType[*client.UnexpectedError](err); ok {
		mediaType, _, _ := mime.ParseMediaType(unexpected.ContentType)
		return fmt.Sprintf("%d with %s", unexpected.Status, mediaType)
	}
	return fmt.Sprint(err)
}
