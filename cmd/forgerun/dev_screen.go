package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/forgerun/forgerun/internal/cli/term"
	"github.com/forgerun/forgerun/internal/lifecycle"
	"github.com/forgerun/forgerun/monitoring"
)

// screen is where dev shows a person what it does.
type screen struct {
	out   io.Writer
	style term.Style
}

// progress shows what the start is at: one line, which the next one replaces. Only a terminal has it.
func (s screen) progress(step string) {
	if s.style.Terminal {
		_, _ = fmt.Fprint(s.out, term.ClearLine+s.style.Paint(term.Faint, step+" ..."))
	}
}

// done takes the line of progress away.
func (s screen) done() {
	if s.style.Terminal {
		_, _ = fmt.Fprint(s.out, term.ClearLine)
	}
}

// link shows an address that a terminal opens.
func (s screen) link(url string) string { return s.style.Link(url, url) }

// greet prints what a person needs for the first five minutes.
func (a *api) greet(s screen, l login) {
	base, token := "http://"+a.addr+"/v1", ""
	if a.p.cfg.OwnAdminToken {
		token = "  Admin token " + a.p.cfg.AdminToken + " (also the password of the console's pages)\n"
	}
	again := ""
	if a.p.cfg.Keys != nil {
		again = " ? shows this again."
	}
	_, _ = fmt.Fprintf(s.out, `
%s

  API         %s
  Client id   %s
  API key     %s
%s  Docs        %s
  Console     %s
  Dashboard   %s
  Data        %s

In another terminal, in this folder:

  forgerun jobs submit SUCCESS_FAST --watch
  forgerun jobs list
  forgerun open

Or by HTTP: submit a job, watch it to its end, look at it, read its report:

  AUTH="Authorization: Bearer %s"
  JOB=$(curl -s %s/jobs -H "$AUTH" -H "Content-Type: application/json" \
     -d '{"type":"EXECUTE","work_kind":"SUCCESS_FAST"}' | grep -o '[0-9a-f-]\{36\}'); echo "$JOB"
  curl -sN %s/jobs/$JOB/events -H "$AUTH" -H "Accept: text/event-stream"
  curl -s %s/jobs/$JOB -H "$AUTH"
  curl -s %s/jobs/$JOB/report -H "$AUTH"

Stop with Ctrl-C.%s
`, s.style.Paint(term.Strong, "ForgeRun "+version+" is ready."), s.link(base), l.ClientID, l.APIKey, token,
		s.link("http://"+a.addr+"/docs"), s.link("http://"+a.p.adminAddr+"/"), s.link("http://"+a.p.adminAddr+monitoring.DashboardPath+"/"),
		a.p.cfg.DataDir,
		l.APIKey, base, base, base, base, again)
}

// keyboard is a part that shows the banner again whenever ? is pressed.
func keyboard(keys *os.File, show func()) lifecycle.Part {
	if keys == nil {
		return lifecycle.Part{}
	}
	var restore func()
	var once sync.Once
	return lifecycle.Part{
		Name: "keyboard",
		Start: func(context.Context) error {
			var ok bool
			if restore, ok = term.KeyByKey(keys); !ok {
				return nil
			}
			go func() { // ends with the process: a read of a terminal cannot be interrupted
				one := make([]byte, 1)
				for {
					if n, err := keys.Read(one); err != nil || n == 0 {
						return
					}
					if one[0] == '?' {
						show()
					}
				}
			}()
			return nil
		},
		Stop: func(context.Context) error {
			once.Do(func() {
				if restore != nil {
					restore()
				}
			})
			return nil
		},
	}
}
