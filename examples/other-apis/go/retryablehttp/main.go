// Retryablehttp submits two jobs, with the code of https://github.com/hashicorp/go-retryablehttp#example-use.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

func main() {
	client := retryablehttp.NewClient()
	client.Logger = nil
	code := 0
	for _, name := range []string{"first", "second"} {
		status, err := run(client, name)
		fmt.Println(name, status, err)
		if err != nil {
			code = 1
		}
	}
	os.Exit(code)
}

func run(client *retryablehttp.Client, name string) (string, error) {
	res, err := client.Post(os.Getenv("FORGERUN_URL")+"/jobs", "application/json", []byte(`{"name": "`+name+`"}`))
	status, err := read(res, err)
	if err != nil {
		return "", err
	}
	location := res.Header.Get("Location")
	for !slices.Contains([]string{"succeeded", "failed", "canceled"}, status) {
		wait, _ := strconv.Atoi(res.Header.Get("Retry-After"))
		time.Sleep(max(time.Second, time.Duration(wait)*time.Second))
		res, err = client.Get(location)
		if status, err = read(res, err); err != nil {
			return "", err
		}
	}
	return status, nil
}

func read(res *http.Response, err error) (string, error) {
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	var job struct{ Status string }
	err = json.NewDecoder(res.Body).Decode(&job)
	return job.Status, err
}
