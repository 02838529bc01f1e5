package doctor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/forgerun/forgerun/repo"
	"github.com/forgerun/forgerun/tasks/queue"
)

// InspectTimeout bounds the inspection of one store, connect included.
const InspectTimeout = 8 * time.Second

// notRunning is of a dev that has no store to inspect. The other roles do not start
// without an address: the configuration's finding.
const notRunning = "dev starts its own; it does not run now, so there is nothing to look at"

// Stores is what was found out about the stores of a role.
type Stores struct {
	Role, DatabaseURL, RedisURL string // the addresses may be empty

	postgres              repo.Inspection
	redis                 queue.Inspection
	postgresErr, redisErr error
}

// Inspect gathers the facts from both stores at once.
func (s *Stores) Inspect(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, InspectTimeout)
	defer cancel()
	var group sync.WaitGroup
	if s.DatabaseURL != "" {
		group.Go(func() { s.postgres, s.postgresErr = repo.Inspect(ctx, s.DatabaseURL) })
	}
	if s.RedisURL != "" {
		group.Go(func() { s.redis, s.redisErr = queue.Inspect(ctx, s.RedisURL) })
	}
	group.Wait()
}

// State is what the database says of the service; nil if it is not known.
func (s *Stores) State() *repo.State { return s.postgres.State }

// JudgeServers judges both servers.
func (fs *Findings) JudgeServers(s *Stores) {
	switch {
	case s.DatabaseURL != "":
		fs.judgePostgres(s.Role, s.postgres, s.postgresErr)
	case s.Role == "dev":
		fs.OK("Postgres", notRunning)
	}
	switch {
	case s.RedisURL != "":
		fs.judgeRedis(s.redis, s.redisErr)
	case s.Role == "dev":
		fs.OK("Redis", notRunning)
	}
}

// obstacle is a reason why a store cannot be inspected.
type obstacle struct {
	err    error
	advice string
}

func (fs *Findings) judgeObstacle(store, place, variable string, err error, known []obstacle) {
	if place == "" {
		place = "(" + variable + ")"
	} else {
		place = "at " + place
	}
	for _, o := range known {
		if errors.Is(err, o.err) {
			fs.Fail(store, place+" "+err.Error(), o.advice)
		}
	}
}

// JudgeService judges which processes of the service are there, and whether the
// stores agree.
func (fs *Findings) JudgeService(s *Stores) {
	if s.postgres.State == nil {
		return
	}
	fs.judgeState(*s.postgres.State)
	if s.redisErr == nil && len(s.redis.Servers) > 0 {
		fs.judgeEpoch(*s.postgres.State, s.redis)
	}
}
