package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"
)

// pool runs eight workers with one http.Client. Each worker submits jobs, waits for their end and reads their results.
func pool(ctx context.Context, a *api) ([]*intention, error) {
	a.http.Transport = &http.Transport{MaxIdleConnsPerHost: 8}
	jobs := intentions(12)
	work := make(chan *intention, len(jobs))
	for _, in := range jobs {
		work <- in
	}
	close(work)
	var workers sync.WaitGroup
	failed := make([]error, 8)
	for i := range failed {
		workers.Go(func() {
			for in := range work {
				wait := time.Duration(i%2) * 2 * time.Second // every other worker asks the service to delay its responses
				if failed[i] = a.runOne(ctx, in, wait); failed[i] != nil {
					return
				}
			}
		})
	}
	workers.Wait()
	return jobs, errors.Join(failed...)
}

func (a *api) runOne(ctx context.Context, in *intention, wait time.Duration) error {
	if err := a.submit(ctx, in, wait); err != nil {
		return err
	}
	if err := a.await(ctx, in); err != nil || in.Ended != "SUCCEEDED" {
		return err
	}
	result := request{
		method: "GET", path: "/v1/jobs/" + in.ID + "/result", header: map[string]string{"Accept": "*/*"}, raw: true, expected: true,
	}
	got, err := a.call(ctx, result, nil, http.StatusOK)
	if err == nil && string(got.body) != in.Correlation {
		err = fmt.Errorf("job %s has the result %q", in.ID, got.body)
	}
	if err != nil {
		return in.giveUp(ctx, err)
	}
	return nil
}

// twoProcesses starts another process, which submits the jobs and prints each as a line of JSON. This process waits until the jobs have
// ended.
func twoProcesses(ctx context.Context, a *api) ([]*intention, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	other := exec.CommandContext(ctx, program, submitter)
	other.Stderr = os.Stderr
	pipe, err := other.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := other.Start(); err != nil {
		return nil, err
	}
	jobs, readErr := a.awaitPrinted(ctx, pipe)
	return jobs, errors.Join(readErr, other.Wait())
}

func (a *api) awaitPrinted(ctx context.Context, lines io.Reader) ([]*intention, error) {
	var jobs []*intention
	var awaiting sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	scanner := bufio.NewScanner(lines)
	for scanner.Scan() {
		in := &intention{}
		if err := json.Unmarshal(scanner.Bytes(), in); err != nil {
			return nil, err
		}
		jobs = append(jobs, in)
		awaiting.Go(func() {
			err := a.await(ctx, in)
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		})
	}
	awaiting.Wait()
	return jobs, errors.Join(append(failed, scanner.Err())...)
}

// submitAndPrint is the main function of the other process. It submits the jobs and prints each as a line of JSON.
func submitAndPrint(ctx context.Context, a *api, out io.Writer) error {
	for _, in := range intentions(6) {
		if err := a.submit(ctx, in, 0); err != nil {
			return err
		}
		if err := json.NewEncoder(out).Encode(in); err != nil {
			return err
		}
	}
	return nil
}
