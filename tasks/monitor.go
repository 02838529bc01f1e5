package tasks

import (
	"net/http"

	"github.com/hibiken/asynqmon"
)

// MonitorHandler serves asynqmon, the queue dashboard, below rootPath (such as
// "/asynqmon"). It shows and changes nothing: its buttons would act on Redis
// alone, where they decide nothing and confuse everybody.
func MonitorHandler(r *Redis, rootPath string) http.Handler {
	return asynqmon.New(asynqmon.Options{RootPath: rootPath, RedisConnOpt: sharedClient{r}, ReadOnly: true})
}

// sharedClient gives asynqmon the client of a Redis, which stays its owner.
type sharedClient struct{ redis *Redis }

// MakeRedisClient is asynq's way to ask for a client.
func (s sharedClient) MakeRedisClient() any { return s.redis.client }
