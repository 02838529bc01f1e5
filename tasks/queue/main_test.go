package queue

import (
	"os"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/tasks/redisconn"
	"github.com/forgerun/forgerun/tasks/redistest"
)

// Short forms of clients.
var anna, bert = job.ID{15: 0xa}, job.ID{15: 0xb}

func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }

func inspector(r *redisconn.Redis) *asynq.Inspector { return asynq.NewInspector(r) }
