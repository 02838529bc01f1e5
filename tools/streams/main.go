// Command streams reads the event stream at FORGERUN_URL with a popular library, and prints the name of each event.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/r3labs/sse/v2"
	"gopkg.in/cenkalti/backoff.v1"
)

func main() {
	c := sse.NewClient(os.Getenv("FORGERUN_URL") + "/v1/events")
	c.Headers["Authorization"] = "Bearer " + os.Getenv("FORGERUN_API_KEY")
	c.ReconnectStrategy = backoff.NewConstantBackOff(200 * time.Millisecond)
	for {
		err := c.SubscribeRaw(func(e *sse.Event) {
			if len(e.Event) > 0 {
				fmt.Println(string(e.Event))
			}
		})
		fmt.Fprintln(os.Stderr, err)
	}
}
