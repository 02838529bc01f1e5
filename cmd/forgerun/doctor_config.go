package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/forgerun/forgerun/internal/doctor"
	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/webhook"
)

// configFindings also take what is found in the configuration.
type configFindings struct{ doctor.Findings }

// judgeConfig judges what needs no store: whether the role would start, and
// values that are allowed but probably not meant.
func (fs *configFindings) judgeConfig(role string, cfg Config, bad error, unknown []string) {
	if bad == nil {
		fs.OK("configuration", "valid for "+role)
	} else {
		for _, sentence := range sentences(bad) {
			fs.Fail("configuration", sentence, role+" does not start like this: correct the variable ('forgerun config "+role+"' lists them all)")
		}
	}
	for _, name := range unknown {
		fs.Warn("configuration", name+" is no variable of this program and is ignored",
			"correct the name ('forgerun config' lists them all), or remove it")
	}
	if bad != nil {
		return // values beside a bad one may not be there
	}
	fs.judgeTimes(role, cfg)
	if role != "dev" {
		fs.judgeExposure(role, cfg)
	}
}

// judgeExposure judges what others can reach or see. What dev does by
// default is for one's own machine.
func (fs *configFindings) judgeExposure(role string, cfg Config) {
	switch {
	case !onLoopback(cfg.AdminAddr):
		fs.Warn("admin listener", cfg.AdminAddr+" is not on loopback: anyone who reaches it reads /metrics and /readyz without the token",
			"let only Prometheus and operators reach it (firewall, private network), or set FORGERUN_ADMIN_ADDR to 127.0.0.1:8081")
	default:
		fs.OK("admin listener", cfg.AdminAddr+" is on loopback")
	}
	fs.judgePublicURL(role, cfg)
	if role == "api" && cfg.OpenRegistration {
		fs.Warn("registration", "open: anyone who reaches the API may create clients and keys",
			"set FORGERUN_OPEN_REGISTRATION=false and create clients with FORGERUN_ADMIN_TOKEN")
		fs.judgeConsent(cfg)
	}
	if (role == "api" || role == "deliverer") && cfg.WebhookAllowPrivate {
		fs.Warn("webhook targets", "clients may have this network's own addresses called, loopback too",
			"set FORGERUN_WEBHOOK_ALLOW_PRIVATE=false, unless every client is trusted")
	}
}

// judgeConsent concerns services at which anybody may register.
func (fs *configFindings) judgeConsent(cfg Config) {
	const what = "webhook consent"
	if cfg.WebhookChallenge {
		fs.OK(what, "receivers are asked, in the name of "+webhook.Origin(cfg.PublicURL))
		return
	}
	fs.Warn(what, "not asked for: anyone who reaches the API may have events sent to receivers that never wanted them",
		"set FORGERUN_WEBHOOK_CHALLENGE=true for api and deliverer processes, or FORGERUN_OPEN_REGISTRATION=false; "+
			"FORGERUN_WEBHOOK_CLIENT_RATE bounds how much is sent")
}

// judgePublicURL concerns the processes that publish addresses of the API.
func (fs *configFindings) judgePublicURL(role string, cfg Config) {
	const what, advice = "public URL", "set FORGERUN_PUBLIC_URL to what clients use, such as https://forgerun.example.com, for all roles alike"
	u, err := url.Parse(cfg.PublicURL)
	switch {
	case cfg.PublicURL == "" && role != "api":
		return // it publishes none
	case cfg.PublicURL == "":
		fs.Warn(what, "not set: links and problem types begin with http://"+cfg.HTTPAddr, advice)
	case err == nil && onLoopback(net.JoinHostPort(u.Hostname(), "0")):
		fs.Warn(what, cfg.PublicURL+" is on loopback: links lead others to their own machine", advice)
	case strings.HasPrefix(cfg.PublicURL, "http://"):
		fs.Warn(what, cfg.PublicURL+" is not https: API keys travel in the clear", "put TLS in front of the API, and "+advice)
	default:
		fs.OK(what, cfg.PublicURL)
	}
}

// judgeTimes concerns workers: a lease must outlive a heartbeat that fails, and
// the next one.
func (fs *configFindings) judgeTimes(role string, cfg Config) {
	if role != "worker" && role != "dev" {
		return
	}
	const what = "lease"
	found := fmt.Sprintf("%v, heartbeat every %v, statements up to %v", cfg.LeaseTimeout, cfg.heartbeat(), cfg.DBTimeout)
	if cfg.heartbeat()+cfg.DBTimeout*6/5 >= cfg.LeaseTimeout {
		fs.Warn(what, found+": one statement that hangs ends the lease and with it all running jobs",
			"raise FORGERUN_LEASE_TIMEOUT above twice FORGERUN_DB_TIMEOUT")
		return
	}
	fs.OK(what, found)
}

// judgeMasterKey concerns those who have one, or should: an api without one does
// start, a deliverer does not, and dev makes its own. The state is nil if
// it is not known.
func (fs *configFindings) judgeMasterKey(role string, cfg Config, state *repo.State) {
	const what = "master key"
	if vault, err := webhook.NewVault(cfg.MasterKey); err == nil && role != "worker" && state != nil {
		keys := webhook.NewKeyring(vault, readKeys(state.SigningKeys))
		if err := keys.Check(context.Background()); err != nil {
			fs.Fail(what, err.Error(),
				"set FORGERUN_MASTER_KEY to that of the other processes: with this one, an api stops, and nothing can be signed nor any "+
					"webhook's secret read")
		} else {
			fs.OK(what, fmt.Sprintf("fits the signing keys in the database (%d)", len(state.SigningKeys)))
		}
	}
	if role != "api" || cfg.MasterKey != nil {
		return
	}
	found := "none: clients cannot register webhooks"
	if state != nil && state.HasWebhooks {
		found += " nor rotate the secrets of those that there are"
	}
	fs.Warn(what, found, "set FORGERUN_MASTER_KEY as for the deliverer; if there is none yet: openssl rand -base64 32")
}

// readKeys are signing keys that were read already.
type readKeys []job.SigningKey

// SigningKeys gives them.
func (k readKeys) SigningKeys(context.Context) ([]job.SigningKey, error) { return k, nil }

// AddSigningKey refuses: the doctor writes nothing.
func (readKeys) AddSigningKey(context.Context, job.SigningKey, bool, time.Duration, time.Duration) error {
	return errors.ErrUnsupported
}
