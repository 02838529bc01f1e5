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
	if key != "" {
		return address, checkKey(ctx, c, address)
	}
	request := "POST /v1/clients"
	id, err := c.CreateClient(ctx)
	if err == nil {
		request += "/" + id + "/keys"
		_, err = c.CreateKey(ctx, id, false)
	}
	problem, told := errors.AsType[*client.Problem](err)
	unexpected, other := errors.AsType[*client.UnexpectedError](err)
	switch {
	case err == nil:
		return address, nil
	case other && unexpected.Status == http.StatusCreated:
		err = fmt.Errorf("the service at %s answered the registration without a client id or key", address)
	case !told || problem.Status == http.StatusNotFound:
		err = foreignError(address, request, err)
	case problem.Status == http.StatusUnauthorized || problem.Status == http.StatusForbidden:
		err = fmt.Errorf("the service at %s does not let strangers register (%s): pass a key with --key", address, answerText(err))
	default:
		err = fmt.Errorf("registration at %s failed: %s answered %s, expected 201", address, request, answerText(err))
	}
	return "", err
}

// checkKey asks for a job that does not exist: what counts is which error comes.
func checkKey(ctx context.Context, c *client.Client, address string) error {
	id := uuid.NewString()
	_, err := c.Job(ctx, id)
	request := "GET /v1/jobs/" + id
	problem, told := errors.AsType[*client.Problem](err)
	switch {
	case told && problem.Code == "RFA_JOB_NOT_FOUND":
		return nil
	case told && (problem.Status == http.StatusUnauthorized || problem.Status == http.StatusForbidden):
		return fmt.Errorf("the service at %s refuses the key: %s", address, answerText(err))
	case told && problem.Status != http.StatusNotFound:
		return fmt.Errorf("the service at %s is not usable now: %s answered %s, expected 404 RFA_JOB_NOT_FOUND",
			address, request, answerText(err))
	}
	return foreignError(address, request, err)
}

// foreignError explains an answer that ForgeRun does not give, and the lack of one.
func foreignError(address, request string, err error) error {
	if lost, ok := errors.AsType[*client.NoAnswerError](err); ok {
		return fmt.Errorf("nothing answers at %s (%w): is the service running, and is --url right?", address, lost.Err)
	}
	return fmt.Errorf("something answers at %s, but not as ForgeRun does (%s: %s): is --url right?", address, request, answerText(err))
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
