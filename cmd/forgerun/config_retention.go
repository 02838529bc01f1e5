package main

import "time"

// retentionVariables are those of keys and of what is kept for how long.
func (c *Config) retentionVariables() []variable {
	return []variable{
		{name: "FORGERUN_API_KEY_TTL", fallback: "2160h", help: "life of an API key", parse: duration(&c.APIKeyTTL, time.Second, 100*365*day)},
		{name: "FORGERUN_RETENTION_JOBS", fallback: "720h", help: "how long finished jobs are kept",
			parse: duration(&c.RetentionJobs, time.Second, 100*365*day)},
	}
}
