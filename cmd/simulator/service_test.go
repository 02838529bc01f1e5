package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	f, err := claimFolder(t.TempDir())
	require.NoError(t, err)
	t.Cleanup(f.release)
	s := &service{
		binary: testkit.Program(t, "forgerun"), dir: f.path, lock: f.lock, httpAddr: anyPort, adminAddr: anyPort,
		stopPatience: testkit.Patience, environ: devEnviron(os.Environ(), f.path, demoScale),
	}
	t.Cleanup(func() { _ = s.stop() })
	require.NoError(t, s.start(t.Context()))
	url, pid := s.url, s.child.PID()
	until := time.Now().Add(100 * time.Millisecond)
	times, err := s.restart(t.Context(), until)
	require.NoError(t, err)
	require.Equal(t, url, s.url)
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
				c, err := client.New(client.Config{URL: url})
				require.NoError(t, err)
				id, err := c.CreateClient(t.Context())
				require.NoError(t, err)
				key, err := c.CreateKey(t.Context(), id, false)
				require.NoError(t, err)
				scale := demoScale
				play(t, tour.Options{
					URL: url + "/v1", Key: key.APIKey, TimeScale: &scale, DeliveryTries: 1 + demoWebhookRetries,
					Timeout: testkit.Patience, Patience: testkit.Patience, Listen: listenAt("127.0.0.1:0", ""),
				})
				requireNothingLeft(t, url, key.APIKey)
			})
		}
		t.Run("by a verdict", func(t *testing.T) {
			t.Parallel()
			for code, flags := range map[int][]string{exitOK: nil, exitDifferent: {"--complete"}} {
				args := append(append([]string{"verdict", "--url", url}, flags...), "--", "sh", "-c", `echo "at $FORGERUN_URL"`)
				got, stdout, stderr := simulate(t, args...)
				require.Equal(t, code, got, stderr)
				require.Contains(t, stdout, "at "+url+"\n")
				require.Contains(t, stdout, "The client is not wrong, as far as this shows: 0 rules kept, 0 broken, ")
			}
		})
	})

	// A child that outlives its demo keeps the folder from being emptied under it.
	require.NoError(t, s.lock.Close())
	_, err = claimFolder(filepath.Dir(s.dir))
	require.ErrorContains(t, err, fmt.Sprintf("still uses %s (process %d at %s)", s.dir, pid, url))
	require.NoError(t, s.stop())
	require.NoError(t, s.stop(), "a second stop does nothing")
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "it has ended and was waited for")
	claimSoon(t, filepath.Dir(s.dir)).release()
}

// played plays a tour and gives what the shell would show.
func played(ctx context.Context, o tour.Options) (code int, stdout, stderr string) {
	var out, progress bytes.Buffer
	o.Progress = &progress
	code = playTour(ctx, o, &out, &progress)
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
	require.Contains(t, stderr, " of 13 kinds finished")
}

// polls hands the answers to polls of jobs to a function, which may change them.
type polls func(body []byte) []byte

func (p polls) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/v1/jobs/") {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(p(body))), -1
	return response, err
}

func tourOfAWrongAnswer(t *testing.T, o tour.Options) {
	o.Kinds, o.Transport = []string{"SUCCESS_FAST", "PAYLOAD_INVALID"}, polls(func(body []byte) []byte {
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
	o.Kinds, o.Listen = []string{"WEBHOOK_5XX", "SUCCESS_FAST"}, listenAt("127.0.0.1:0", gone.URL)
	code, stdout, stderr := played(t.Context(), o)
	require.Equal(t, exitDifferent, code, stdout+stderr)
	require.Contains(t, stdout, "1 of 2 kinds could not be judged: WEBHOOK_5XX.")
	require.Contains(t, stdout, "the service cannot deliver to the receiver at "+gone.URL+" (CONNECTION_FAILED): set FORGERUN_WEBHOOK_")
	require.Contains(t, stdout, "--receiver-url")
	require.Regexp(t, `SUCCESS_FAST .*yes`, stdout)
}

func tourInterrupted(t *testing.T, o tour.Options) {
	ctx, interrupt := context.WithCancel(t.Context())
	o.Kinds, o.Transport = []string{"SCHEDULED_ON_TIME"}, polls(func(body []byte) []byte {
		if bytes.Contains(body, []byte(`"CREATED"`)) {
			interrupt()
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

func TestDevEnviron(t *testing.T) {
	t.Parallel()
	environ := devEnviron([]string{"PATH=/bin", "FORGERUN_DATABASE_URL=postgres://prod", "OTHER=FORGERUN_"}, "/data/demo", 0.02)
	require.Subset(t, environ, []string{
		"PATH=/bin", "OTHER=FORGERUN_", "FORGERUN_DATA_DIR=/data/demo", "FORGERUN_TIME_SCALE=0.02", "FORGERUN_WEBHOOK_ALLOW_PRIVATE=true",
	})
	require.NotContains(t, strings.Join(environ, " "), "postgres://prod")
}
