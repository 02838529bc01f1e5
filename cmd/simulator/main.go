// Command simulator has the commands of forgerun that play scenarios and judge, for those who have the service elsewhere.
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/forgerun/forgerun/internal/simulator/commands"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // the heap is small, and time is what a generator must not waste
	}
	code := commands.Simulator(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
