// Command naive makes common mistakes, in contrast to examples/go/client. Under the profile duplicate-deliveries with seed 7, the verdict
// finds all of these mistakes:
//
//	tampered-refused                    it accepts every delivery, whatever its signature
//	repeated-delivery                   it responds to a repeated delivery with an error
//	deliveries-answered                 it also responds with an error to a real delivery after a forged one with the same id
//	retry-after, conditional-requests   it polls in a tight loop
//	correlation-ids                     it sends no correlation ids, so logs cannot distinguish its jobs
//	connection-reuse                    it opens a connection for each request
package main

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var known sync.Map
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if _, again := known.LoadOrStore(r.Header.Get("Webhook-Id"), true); again {
			w.WriteHeader(http.StatusConflict)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	call("POST", "/v1/webhooks", `{"url":"http://`+listener.Addr().String()+`/","events":["job.succeeded"]}`)
	for range 12 {
		path := "/v1/jobs/" + call("POST", "/v1/jobs", `{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}`)["job_id"].(string)
		for call("GET", path, "")["state"] != "SUCCEEDED" {
		}
	}
	time.Sleep(5 * time.Second)
}

func call(method, path, body string) (answer map[string]any) {
	r, err := http.NewRequest(method, os.Getenv("FORGERUN_URL")+path, strings.NewReader(body))
	if err != nil {
		log.Fatal(err)
	}
	r.Close = true
	r.Header.Set("Authorization", "Bearer "+os.Getenv("FORGERUN_API_KEY"))
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	if err := json.NewDecoder(got.Body).Decode(&answer); err != nil {
		log.Fatal(err)
	}
	return answer
}
