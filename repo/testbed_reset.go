package repo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/forgerun/forgerun/job"
)

var (
	forgetAnswers = statement("forgetAnswers")
	expireResult  = statement("expireResult")
)

// ExpireResult lets the result of a client's job expire now.
func (s *Store) ExpireResult(ctx context.Context, client, id job.ID) error {
	return s.exec(ctx, "testbed", expireResult, uuid(id), uuid(client))
}

// resetSteps are the steps of a reset, in the order of those of an erasure. Nothing keeps new rows out, so none waits until they are.
// Sessions stay, with what they have recorded.
var resetSteps = []eraseStep{
	{"stop", (*erasing).stop},
	{"schedules", limited("schedules", eraseSchedules)},
	{"cancel", (*erasing).findUnfinished},
	{"waiting_deliveries", (*erasing).waitingDeliveries},
	{"jobs", (*erasing).jobs},
	{"webhooks", (*erasing).webhooks},
	{"batches", along("batches", eraseBatches)},
	{"tombstones", along("tombstones", eraseTombstones)},
	{"bulk_items", (*erasing).items},
	{"bulk_operations", limited("bulk_operations", eraseBulks)},
	{"testbed_faults", limited("testbed_faults", eraseFaults)},
	{"client_events", limited("client_events", eraseClientEvents)},
	{"idempotency_keys", limited("idempotency_keys", forgetAnswers)},
}

// ResetStep does the next part of a reset of e.ClientID, and notes in e how far it has come: it begins with the zero Step. It
// reports that nothing is left to be done. A part that was done is not undone by what fails later.
func (s *Store) ResetStep(ctx context.Context, e *job.Erasure) (step job.ErasureStep, done bool, err error) {
	err = s.inTx(ctx, "testbed", func(ctx context.Context, tx pgx.Tx) error {
		after := *e
		part := erasing{ErasureStep: job.ErasureStep{Erasure: &after}, tx: tx}
		n := stepNumber(resetSteps, e.Step)
		finished, err := resetSteps[n].run(&part, ctx)
		if err != nil {
			return err
		}
		after.Step = resetSteps[n].name
		if finished {
			after.Position, after.PositionJob = job.ID{}, job.ID{}
			if done = n+1 == len(resetSteps); !done {
				after.Step = resetSteps[n+1].name
			}
		}
		part.Progress = finished || len(part.Unfinished) > 0 || after.Position != e.Position || len(part.Tasks) > 0
		step = part.ErasureStep
		return nil
	})
	if err == nil {
		*e = *step.Erasure
	}
	return step, done, err
}
