package delivery

import (
	"github.com/forgerun/forgerun/job"
)

// fakeDeliveries answers for a Store; replays is what is left to replay,
// and passes how many statements find nothing before there is something.
type fakeDeliveries struct {
	Store
	replays    int
	passes     int
	after      []job.Position
	asked      []job.DeliveryOwner
	limits     []int
	failsAfter int // ReplayEvents fails after it has queued so many
	err        error
}

// fakeSecrets seals by prefixing.
type fakeSecrets struct{}
