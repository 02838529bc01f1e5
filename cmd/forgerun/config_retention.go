package main

import "time"

// retentionVariables are those of keys and of what is kept for how long.
func (c *Config) retentionVariables() []variable {
	return []variable{
		{name: "FORGERUN_API_KEY_TTL", fallback: "2160h", help: "life of an API key", parse: duration(&c.APIKeyTTL, time.Second, 100*365*day)},
		{name: "FORGERUN_API_KEY_OVERLAP", fallback: "10m", help: "how long a replaced API key stays valid",
			parse: duration(&c.APIKeyOverlap, 0, 365*day)},
		{name: "FORGERUN_API_KEY_RENEW_WINDOW", fallback: "168h", help: "how long after its end an API key can be renewed; 0s: not at all",
			parse: duration(&c.APIKeyRenewWindow, 0, 365*day)},
		{name: "FORGERUN_IDEMPOTENCY_WINDOW", fallback: "24h", help: "how long an idempotency key holds",
			parse: duration(&c.IdempotencyWindow, time.Second, 365*day)},
		{name: "FORGERUN_RETENTION_JOBS", fallback: "720h", help: "how long finished jobs are kept",
			parse: duration(&c.RetentionJobs, time.Second, 100*365*day)},
		{name: "FORGERUN_RETENTION_RESULTS", fallback: "24h", help: "how long result bodies are kept",
			parse: duration(&c.RetentionResults, time.Second, 100*365*day)},
		{name: "FORGERUN_RETENTION_KEYS", fallback: "2160h",
			help:  "how long API keys are kept for audit after they were revoked or have expired, whichever came later; and what operators did",
			parse: duration(&c.RetentionKeys, 0, 100*365*day)},
		{name: "FORGERUN_RETENTION_TOMBSTONES", fallback: "2160h", help: "how long a removed job answers 410 instead of 404",
			parse: duration(&c.RetentionTombstones, 0, 100*365*day)},
		{name: "FORGERUN_RETENTION_UNUSED_CLIENTS", fallback: "720h",
			help:  "how long clients are kept of whose keys none was ever used; an hour at least, 0s: for ever",
			parse: duration(&c.RetentionUnusedClients, 0, 100*365*day)},
	}
}
