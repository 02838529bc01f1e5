package experiments

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/forgerun/forgerun/internal/bench/lab"
)

// scraper reads metrics as the Prometheus of the configuration in monitoring does:
// as often, in the same form and with the same time limit.
type scraper struct {
	mu     sync.Mutex
	failed error
}

const scrapeInterval = 5 * time.Second

// adminListening matches what a program logs of its admin listener.
const adminListening = `"admin listening".*"address":"([^"]+)"`

// start starts a system and reads the metrics of each of its processes.
func (s *scraper) start(start lab.Starter) lab.Starter {
	return func(ctx context.Context, d *lab.Database, o lab.Options) (lab.System, error) {
		sys, err := start(ctx, d, o)
		if err != nil {
			return sys, err
		}
		startWorker := sys.StartWorker
		sys.StartWorker = func() (*lab.Program, error) {
			w, err := startWorker()
			if err != nil {
				return w, err
			}
			return w, s.follow(ctx, w)
		}
		return sys, s.follow(ctx, sys.API)
	}
}

// follow reads a program's metrics once, and then in the background until the
// program is stopped.
func (s *scraper) follow(ctx context.Context, p *lab.Program) error {
	address, err := p.Await(adminListening)
	if err != nil {
		return err
	}
	url := "http://" + address + "/metrics"
	if err := scrape(ctx, url); err != nil {
		return err
	}
	go func() {
		ticker := time.NewTicker(scrapeInterval)
		defer ticker.Stop()
		for {
			select {
			case <-p.Stopping:
				return
			case <-ticker.C:
			}
			err := scrape(ctx, url)
			select {
			case <-p.Stopping: // which explains any error
				return
			default:
				s.note(err)
			}
		}
	}()
	return nil
}

func (s *scraper) note(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = errors.Join(s.failed, err)
}

// failure lists the scrapes that failed: what was measured is then not what it costs
// to be scraped.
func (s *scraper) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// scrapeHeader is what Prometheus 3 sends.
var scrapeHeader = http.Header{
	"Accept": {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5," +
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"},
	"Accept-Encoding": {"gzip"},
}

var scraping = &http.Client{Timeout: 4 * time.Second}

func scrape(ctx context.Context, url string) error {
	_, header, err := get(ctx, scraping, url, scrapeHeader)
	if err != nil {
		return fmt.Errorf("scraping: %w", err)
	}
	if form := header.Get("Content-Type"); !strings.HasPrefix(form, "application/openmetrics-text") {
		return fmt.Errorf("scraping: %s", form)
	}
	return nil
}
