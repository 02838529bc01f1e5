package commands

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/client"
	"github.com/forgerun/forgerun/internal/simulator/tour"
	"github.com/forgerun/forgerun/internal/testkit"
)

// TestServiceOfOurOwn starts a real service, again after an outage, and plays tours and a verdict against it.
func TestServiceOfOurOwn(t *testing.T) {
	t.Parallel()
	d := &demo{binary: testkit.Program(t, "forgerun"), environ: os.Environ()}
	s, err := d.service()
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.stop(); _ = os.RemoveAll(s.dir) })
	require.NoError(t, s.start(t.Context()))
	address, pid := s.url, s.child.PID()
	until := time.Now().Add(100 * time.Millisecond)
	times, err := s.restart(t.Context(), until)
	require.NoError(t, err)
	require.Equal(t, address, s.url)
	require.NotEqual(t, pid, s.child.PID())
	require.False(t, times.Restarted.Before(until))
	require.True(t, times.Down.Before(times.Restarted) && times.Restarted.Before(times.Ready))
	pid = s.child.PID()

	t.Run("is toured", func(t *testing.T) {
		for name, play := range map[string]func(*testing.T, tour.Options){
			"as it should be": tourOfAGoodService, "with an answer that is wrong": tourOfAWrongAnswer, "for too short a time": tourWithoutTime,
			"without a way to the receiver": tourWithoutAReceiver, "until it is interrupted": tourInterrupted,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c, err := client.New(client.Config{URL: address})
				require.NoError(t, err)
				id, err := c.CreateClient(t.Context())
				require.NoError(t, err)
				key, err := c.CreateKey(t.Context(), id, false)
				require.NoError(t, err)
				o := d.options(s)
				o.URL, o.Key, o.Outage, o.Timeout, o.Patience = address+"/v1", key.APIKey, nil, testkit.Patience, testkit.Patience
				play(t, o)
				requireNothingLeft(t, address, key.APIKey)
			})
		}
		t.Run("by a verdict", func(t *testing.T) {
			t.Parallel()
			asks := []string{"sh", "-c", `echo "at $FORGERUN_URL"; exec "$0" jobs submit SUCCESS_FAST --wait`, testkit.Program(t, "forgerun")}
			for code, args := range map[int][]string{
				exitOK: append([]string{"--"}, asks...), exitDifferent: append([]string{"--complete", "--"}, asks...),
				exitUnusable: {"--", "sh", "-c", `echo "at $FORGERUN_URL"`}, // which asks nothing
			} {
				got, stdout, stderr := simulate(t, append([]string{"verdict", "--url", address}, args...)...)
				require.Equal(t, code, got, stderr)
				require.Contains(t, stdout, "at "+address+"\n")
				concluded := map[bool]string{true: "\nNOTHING JUDGED\n", false: "\nPASSED WITH WARNINGS: 1 warning\n"}
				require.Contains(t, stdout, concluded[code == exitUnusable])
			}
		})
	})

	require.NoError(t, s.stop())
	require.NoError(t, s.stop(), "a second stop does nothing")
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "it has ended and was waited for")
}

// played plays a tour and gives what the shell would show.
func played(ctx context.Context, o tour.Options) (code int, stdout, stderr string) {
	out, progress := &testkit.Output{}, &testkit.Output{}
	o.Stdout, o.Stderr = out, progress
	code = Program{Stdout: out, Stderr: progress}.playTour(ctx, o)
	return code, out.String(), progress.String()
}

// tourOfAGoodService has kinds that are judged alike on a machine of any speed.
func tourOfAGoodService(t *testing.T, o tour.Options) {
	o.Kinds = []string{
		"SUCCESS_FAST", "FAIL_IMMEDIATE", "CANCEL_BEFORE_START", "RETRY_ON_FAIL", "RETRY_LIMIT_REACHED", "DUPLICATE_SUBMIT_SAME_KEY",
		"DUPLICATE_SUBMIT_DIFFERENT_KEY", "WEBHOOK_SUCCESS", "WEBHOOK_5XX", "WEBHOOK_RETRIES_EXHAUSTED", "SCHEDULED_FAR_FUTURE",
		"PAYLOAD_LARGE", "PAYLOAD_INVALID",
	}
	code, stdout, stderr := played(t.Context(), o)
	require.Equal(t, exitOK, code, stdout+stderr)
	require.Contains(t, stdout, "\nAll 13 kinds behaved as the catalogue says, in ")
	for _, row := range []string{
		`^KIND +EXPECTED +GOT +ATTEMPTS +DURATION +OK`, `SUCCESS_FAST +SUCCEEDED +SUCCEEDED +1 +\S+ +yes`,
		`RETRY_ON_FAIL +FAILED, then SUCCEEDED +FAILED, then SUCCEEDED +2 +\S+ +yes`,
		`RETRY_LIMIT_REACHED +FAILED, no retry left +FAILED, no retry left +4 +\S+ +yes`,
		`WEBHOOK_RETRIES_EXHAUSTED +SUCCEEDED, delivery FAILED +SUCCEEDED, delivery FAILED +1 +\S+ +yes`,
		`CANCEL_BEFORE_START +CANCELED +CANCELED +1 +0s +yes`, `PAYLOAD_INVALID +REJECTED +REJECTED +- +- +yes`,
	} {
		require.Regexp(t, row, stdout)
	}
}

// through gives the address of a proxy that lets a function see, and change, the answers to a method about jobs.
func through(t *testing.T, service, method string, see func(r *http.Request, body []byte) []byte) string {
	t.Helper()
	target, err := url.Parse(strings.TrimSuffix(service, "/v1"))
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(response *http.Response) error {
		if r := response.Request; r.Method != method || !strings.HasPrefix(r.URL.Path, "/v1/jobs") {
			return nil
		}
		body, err := io.ReadAll(response.Body)
		body = see(response.Request, body)
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		response.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return err
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

func tourOfAWrongAnswer(t *testing.T, o tour.Options) {
	o.Kinds, o.URL = []string{"SUCCESS_FAST", "PAYLOAD_INVALID"}, through(t, o.URL, http.MethodGet, func(_ *http.Request, body []byte) []byte {
		return bytes.Replace(body, []byte(`"max_attempts":4`), []byte(`"max_attempts":0`), 1)
	})
	code, stdout, stderr := played(t.Context(), o)
	require.Equal(t, exitDifferent, code, stdout+stderr)
	require.Contains(t, stdout, "\n1 of 2 kinds differ: SUCCESS_FAST.\n")
	require.Contains(t, stdout, "max_attempts 0")
}

// What the tour has no time for is a difference, and what it leaves unfinished is canceled.
func tourWithoutTime(t *testing.T, o tour.Options) {
	o.Kinds, o.Timeout = []string{"SCHEDULED_ON_TIME"}, 2*time.Second
	code, stdout, stderr := played(t.Context(), o)
	require.Equal(t, exitDifferent, code, stdout+stderr)
	require.Contains(t, stdout, "not finished within 2s; last seen ")
}

// Nothing is wrong with a service that cannot call the receiver, but nothing is judged either, and how to change that is said.
func tourWithoutAReceiver(t *testing.T, o tour.Options) {
	gone := httptest.NewServer(nil)
	gone.Close()
	o.Kinds, o.ReceiverURL = []string{"WEBHOOK_5XX", "SUCCESS_FAST"}, gone.URL
	code, stdout, stderr := played(t.Context(), o)
	require.Equal(t, exitDifferent, code, stdout+stderr)
	require.Contains(t, stdout, "1 of 2 kinds could not be judged: WEBHOOK_5XX.")
	require.Contains(t, stdout, "the service cannot deliver to the receiver at "+gone.URL+" (CONNECTION_FAILED): set FORGERUN_WEBHOOK_")
	require.Contains(t, stdout, "--receiver-url")
	require.Regexp(t, `SUCCESS_FAST .*yes`, stdout)
}

// A tour that is interrupted while a submission is on its way leaves no job of it either.
func tourInterrupted(t *testing.T, o tour.Options) {
	ctx, interrupt := context.WithCancel(t.Context())
	over := make(chan struct{})
	defer close(over)
	o.Kinds, o.URL = []string{"SCHEDULED_FAR_FUTURE"}, through(t, o.URL, http.MethodPost, func(r *http.Request, body []byte) []byte {
		if strings.HasSuffix(r.URL.Path, "/jobs") {
			interrupt()
			<-over // nobody waits for this answer any longer
		}
		return body
	})
	code, stdout, stderr := played(ctx, o)
	require.Equal(t, exitInterrupted, code, stdout)
	require.Contains(t, stderr, "interrupted")
	require.Empty(t, stdout)
}

// requireNothingLeft checks that the client's jobs have ended and its webhooks are gone.
func requireNothingLeft(t *testing.T, url, key string) {
	t.Helper()
	c, err := client.New(client.Config{URL: url, Key: key})
	require.NoError(t, err)
	for j, err := range c.Jobs(t.Context(), client.JobFilter{}) {
		require.NoError(t, err)
		require.True(t, j.Final(), "%s is left %s", j.WorkKind, j.State)
	}
	left, err := c.Webhooks(t.Context())
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestEnvironmentOfAService(t *testing.T) {
	t.Parallel()
	s, err := newService("", []string{"PATH=/bin", "FORGERUN_DATABASE_URL=postgres://prod", "OTHER=FORGERUN_"}, 0.02)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(s.dir))
	environ := s.command.Env
	require.Subset(t, environ, []string{
		"PATH=/bin", "OTHER=FORGERUN_", "FORGERUN_DATA_DIR=" + s.dir, "FORGERUN_TIME_SCALE=0.02", "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true",
	})
	require.NotContains(t, strings.Join(environ, " "), "postgres://prod")
}
