package backend

import (
	_ "embed"
	"strings"

	"github.com/forgerun/forgerun/job"
)

// API keys. OtherKey and RevokedKey belong to client B, the others to client A. RenewableKey and ExpiredKey have expired.
const (
	GoodKey      = "frk_goodKey00000_secretOfgood00000000000000000000000000000004YBIQj"
	SomeKey      = "abcKey000000" // id of a valid key of client A
	ReaderKey    = "frk_readKey00000_secretOfread000000000000000000000000000000026D8Tx"
	SubmitterKey = "frk_submitKey000_secretOfsubmit000000000000000000000000000000Ud7mS"
	RenewableKey = "frk_renewableKey_secretOfrenewable000000000000000000000000002OpNB5"
	ExpiredKey   = "frk_expiredKey00_secretOfexpired000000000000000000000000000015TQ7Y"
	OtherKey     = "frk_otherKey0000_secretOfother0000000000000000000000000000004ImICQ"
	RevokedKey   = "frk_revokedKey00_secretOfrevoked000000000000000000000000000020vrKl"
)

// Ids of rows that Seed inserts.
var (
	ClientA      = id("00000000-0000-4000-8000-00000000000a")
	ClientB      = id("00000000-0000-4000-8000-00000000000b")
	ErasedClient = id("00000000-0000-4000-8000-00000000000c")
	Job          = id("01890000-0000-7000-8000-000000000001") // has succeeded
	QueuedJob    = id("01890000-0000-7000-8000-000000000002") // an item of Batch
	FailedJob    = id("01890000-0000-7000-8000-000000000003") // can be retried
	ForeignJob   = id("01890000-0000-7000-8000-00000000000f") // of client B
	Batch        = id("01890000-0000-7000-8000-0000000000ba")
	Webhook      = id("01890000-0000-7000-8000-0000000000c1")
	Delivery     = id("01890000-0000-7000-8000-0000000000d1") // to Webhook
	Callback     = id("01890000-0000-7000-8000-0000000000d2") // a failed delivery to the callback of Job
	Schedule     = id("01890000-0000-7000-8000-0000000000d2")
	Bulk         = id("01890000-0000-7000-8000-0000000000e2")
	Pause        = id("01890000-0000-7000-8000-0000000000f1")
	Worker       = id("01890000-0000-7000-8000-0000000000f2")
	Erasure      = id("01890000-0000-7000-8000-0000000000f3")
	Session      = id("01890000-0000-7000-8000-0000000000f4")
	Rule         = id("01890000-0000-7000-8000-0000000000f5")
)

func id(s string) job.ID {
	id, err := job.ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

var owners = map[string]job.ID{
	"jobs": Job, "batches": Batch, "webhooks": Webhook, "deliveries": Delivery, "bulk": Bulk, "schedules": Schedule, "clients": ClientA,
	"pauses": Pause, "erasures": Erasure, "sessions": Session, "faults": Rule,
}

// Path replaces the parameters in a route's path with ids of rows that Seed inserts.
func Path(template string) string {
	parts := strings.Split(template, "/")
	for i, part := range parts {
		if i == 0 || !strings.HasPrefix(part, ":") && !strings.HasPrefix(part, "{") {
			continue
		}
		switch name := strings.Trim(part, ":{}"); name {
		case "n":
			parts[i] = "1"
		case "name":
			parts[i] = "job-result"
		case "slug":
			parts[i] = "conflict"
		case "key_id":
			parts[i] = SomeKey
		default:
			parts[i] = owners[parts[i-1]].String()
			if name == "delivery_id" && strings.HasPrefix(template, "/v1/jobs/") {
				parts[i] = Callback.String()
			}
		}
	}
	return strings.Join(parts, "/")
}

//go:embed seed.sql
var seed string

// Seed deletes all rows, and inserts the sample rows of seed.sql.
func (s *Service) Seed() {
	s.T.Helper()
	s.Exec(seed)
	_, err := s.Store.ReadClockMove(s.T.Context())
	if err != nil {
		s.T.Fatal(err)
	}
}
