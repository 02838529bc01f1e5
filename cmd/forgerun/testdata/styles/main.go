// Command styles is a client of ForgeRun in ten styles, and a client of Stripe. "styles NAME" submits a few jobs in one of the styles and
// waits until they have ended. The program follows the documentation, and uses only the standard library.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

var styles = map[string]func(context.Context, *api) ([]*intention, error){
	"long-poll":     longPoll,
	"poll":          poll,
	"hint-and-read": hintAndRead,
	"list":          list,
	"batch":         batch,
	"stream":        streamOnly,
	"webhook":       webhookOnly,
	"pool":          pool,
	"two-processes": twoProcesses,
	"job-stream":    jobStream,
	"payouts":       payouts,
}

// submitter is the argument that starts the second process of the style two-processes.
const submitter = "submitter"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	a := &api{url: os.Getenv("FORGERUN_URL"), key: os.Getenv("FORGERUN_API_KEY"), http: newClient()}
	if a.url == "" || a.key == "" {
		return errors.New("FORGERUN_URL and FORGERUN_API_KEY are needed")
	}
	limit := 150 * time.Second
	if !mistaken("") && slices.ContainsFunc(args, func(name string) bool { return name == "webhook" || strings.HasSuffix(name, "stream") }) {
		limit = 30 * time.Second // with some mistakes the client would wait forever
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if len(args) == 1 && args[0] == submitter {
		return submitAndPrint(ctx, a, os.Stdout)
	}
	if len(args) != 1 || styles[args[0]] == nil {
		return fmt.Errorf("usage: styles NAME, one of %v", slices.Sorted(maps.Keys(styles)))
	}
	jobs, err := styles[args[0]](ctx, a)
	if err != nil {
		return err
	}
	var wrong []error
	for _, in := range jobs {
		if in.Ended != in.Ends {
			wrong = append(wrong, fmt.Errorf("job %s ended as %q, not as %s", in.ID, in.Ended, in.Ends))
		}
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	fmt.Printf("%d jobs ended as intended\n", len(jobs))
	return nil
}
