package delivery

import (
	"context"
	"time"

	"github.com/forgerun/forgerun/internal/fair"
	"github.com/forgerun/forgerun/job"
)

// Bounds of how many receivers are asked at once by one process. The clients share
// the slots fairly; what a receiver that hangs holds up is its client's own.
const (
	proofsAtOnce       = 64
	clientProofsAtOnce = 2
)

// proofs are asked for before a URL is taken.
type proofs struct {
	challenge Challenge
	own       *origins // a client's
	slots     *fair.Semaphore[job.ID]
}

func newProofs(c Challenge) *proofs {
	return &proofs{challenge: c, own: newOrigins(clientProofsAtOnce), slots: fair.New[job.ID](proofsAtOnce)}
}

// errManyProofs is for those that did not get a slot before their request ended.
var errManyProofs = &job.Error{
	Code: job.CodeQueueFull, Detail: "Too many receivers are being asked whether they want events. Try again later.", RetryAfter: time.Second,
}

// Prove asks the receiver at a URL, which was checked before, whether it wants
// events. It takes some seconds, so nothing that others wait for may be held
// meanwhile, and no transaction be open. What the receiver does not say is a
// violation of the URL.
func (s *Webhooks) Prove(ctx context.Context, client job.ID, url string) error {
	if s.proofs == nil {
		return nil
	}
	wrong, err := s.proofs.ask(ctx, client, url)
	switch {
	case err != nil:
		return err
	case wrong != "":
		return job.Invalid(job.Violation{Pointer: "/url", Detail: wrong})
	}
	return nil
}

func (p *proofs) ask(ctx context.Context, client job.ID, url string) (wrong string, err error) {
	own := originKey{client: client}
	if !p.own.enter(own, ctx.Done()) {
		return "", errManyProofs
	}
	defer p.own.leave(own)
	if !p.slots.Acquire(client, ctx.Done()) {
		return "", errManyProofs
	}
	defer p.slots.Release(client)
	wrong = p.challenge.Ask(ctx, url)
	return wrong, ctx.Err() // an answer that was cut off says nothing
}
