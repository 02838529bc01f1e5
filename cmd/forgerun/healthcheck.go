package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/forgerun/forgerun/internal/cli/command"
)

// firstProcess is the file with the arguments of process 1, the main process of a container.
const firstProcess = "/proc/1/cmdline"

func (p *program) healthcheckCommand() *cobra.Command {
	var at string
	c := command.New("healthcheck", "Exit with 0 if the process in this container, or at --url, is ready",
		func(c *cobra.Command, _ []string) error {
			if !c.Flags().Changed("url") {
				arguments, _ := os.ReadFile(firstProcess) // /proc exists only on Linux
				if running, ours := p.healthAddress(string(arguments)); ours {
					at = running
				}
			}
			if at == "" { // a command that does not listen is healthy as long as it runs
				return nil
			}
			if err := healthcheck(c.Context(), at); err != nil {
				return fmt.Errorf("forgerun healthcheck: %w", err)
			}
			return nil
		})
	c.Flags().StringVar(&at, "url", "http://127.0.0.1:8080/readyz", "`address` to check; tcp://HOST:PORT only checks that a process listens")
	return c
}

// healthAddress parses the command line of a process, and returns the address to check. `ours` is false if the program is not forgerun.
// `at` is empty if the command does not listen.
func (p *program) healthAddress(cmdline string) (at string, ours bool) {
	args := strings.Split(strings.TrimRight(cmdline, "\x00"), "\x00")
	program := slices.IndexFunc(args, func(arg string) bool { return path.Base(arg) == "forgerun" }) // an init program may come first
	if program < 0 {
		return "", false
	}
	c, flags, err := p.root().Find(args[program+1:])
	if err != nil || c.ParseFlags(flags) != nil {
		return "", true
	}
	switch c.CommandPath() {
	case "forgerun dev":
		return urlOf("http", cmp.Or(p.getenv("FORGERUN_HTTP_ADDR"), "127.0.0.1:8080"), "/readyz"), true
	case "forgerun api", "forgerun worker", "forgerun deliverer":
		return readiness(c, cmp.Or(p.getenv("FORGERUN_ADMIN_ADDR"), adminAddrs[c.Name()])), true
	case "forgerun proxy": // the proxy injects faults into requests, so check only that it listens
		return urlOf("tcp", c.Flag("listen").Value.String(), ""), true
	default:
		return "", true
	}
}

func readiness(c *cobra.Command, address string) string {
	if flag := c.Flag("admin-port"); flag.Changed {
		port, _ := strconv.Atoi(flag.Value.String()) // the flag accepts only numbers
		address = withPort(address, port)
	}
	return urlOf("http", address, "/readyz")
}

// urlOf returns the URL of a listen address, or "" for port 0.
func urlOf(scheme, address, path string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "0" {
		return ""
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port) + path
}

func healthcheck(ctx context.Context, at string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if u, err := url.Parse(at); err == nil && u.Scheme == "tcp" {
		var dialer net.Dialer
		connection, err := dialer.DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return err
		}
		return connection.Close()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return &command.Exit{Code: command.WrongUsage, Err: err}
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the process returned %s", response.Status)
	}
	return nil
}
