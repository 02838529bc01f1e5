package main

import (
	"context"
	"time"
)

// The states and outcomes of section 9 and section 8.
const (
	stateCreated   = "CREATED"
	stateQueued    = "QUEUED"
	stateAssigned  = "ASSIGNED"
	stateRunning   = "RUNNING"
	stateSucceeded = "SUCCEEDED"
	stateFailed    = "FAILED"
	stateCanceled  = "CANCELED"
)

// transitions is the table of section 9. The return of an expired lease,
// ASSIGNED to QUEUED, is judged by the name of its event.
var transitions = map[string][]string{
	stateCreated:  {stateQueued, stateCanceled},
	stateQueued:   {stateAssigned, stateCanceled},
	stateAssigned: {stateRunning, stateCanceled},
	stateRunning:  {stateSucceeded, stateFailed, stateCanceled},
	stateFailed:   {stateQueued},
}

// outcomes maps each final state to its outcome.
var outcomes = map[string]string{
	stateSucceeded: "SUCCESS",
	stateFailed:    "FAILED",
	stateCanceled:  "CANCELED",
}

func isFinal(state string) bool { return outcomes[state] != "" }

// failing is what a kind's failure must say.
type failing struct {
	retryable bool
	timedOut  bool
}

var (
	lasting   = &failing{}
	passing   = &failing{retryable: true}
	overLimit = &failing{retryable: true, timedOut: true}
)

// kind is one row of the catalogue (section 6): what the service is expected
// to do, and the client's part in it.
type kind struct {
	name     string
	duration time.Duration // of the work at time scale 1; 0: depends on the service's settings
	payload  int           // bytes of a successful result
	outcome  string        // the row's expected outcome
	expected string        // what the tour as a whole must see, for the table
	failure  *failing      // of each failed attempt; nil: must not fail
	outage   bool          // wants the service to be down across its due time
	part     part
}

// part is the client's part in a kind: it submits, acts, waits and judges. An
// error is one more difference.
type part func(context.Context, *visit) error

// row starts a row that succeeds by itself: the client submits and waits.
func row(name string, milliseconds, payloadKiB int) kind {
	return kind{
		name: name, duration: time.Duration(milliseconds) * time.Millisecond, payload: payloadKiB * 1024,
		outcome: stateSucceeded, expected: stateSucceeded, part: submitAndWait,
	}
}

func (k kind) fails(expected string, f *failing) kind {
	k.outcome, k.expected, k.failure = stateFailed, expected, f
	return k
}

func (k kind) canceled() kind {
	k.outcome, k.expected = stateCanceled, stateCanceled
	return k
}

func (k kind) expects(expected string) kind {
	k.expected = expected
	return k
}

func (k kind) does(p part) kind {
	k.part = p
	return k
}

func (k kind) acrossOutage() kind {
	k.outage = true
	return k
}

// catalogue lists the 31 kinds in the order of section 6.
func catalogue() []kind {
	return []kind{
		row("SUCCESS_FAST", 1_000, 4),
		row("SUCCESS_NORMAL", 10_000, 16),
		row("SUCCESS_SLOW", 90_000, 32),
		row("FAIL_IMMEDIATE", 500, 1).fails("FAILED", lasting),
		row("FAIL_AFTER_PROGRESS", 20_000, 8).fails("FAILED", lasting),
		row("FAIL_AFTER_RETRYABLE", 5_000, 8).fails("FAILED, retryable", passing),
		row("RUNS_LONG", 110_000, 32),
		row("RUNS_OVER_TIMEOUT", 0, 8).fails("FAILED, timed out", overLimit),
		row("CPU_BURST", 8_000, 4),
		row("MEMORY_SPIKE", 12_000, 64),
		row("IO_HEAVY", 15_000, 32),
		row("MANY_SMALL_OUTPUTS", 9_000, 16),
		row("LARGE_OUTPUT", 9_000, 256),
		row("CANCEL_BEFORE_START", 5_000, 4).canceled().does(cancelBeforeStart),
		row("CANCEL_DURING_RUN", 10_000, 4).canceled().does(cancelDuringRun),
		row("RETRY_ON_FAIL", 3_000, 4).fails("FAILED, then SUCCEEDED", passing).does(retryOnce),
		row("RETRY_LIMIT_REACHED", 3_000, 4).fails("FAILED, no retry left", passing).does(retryToTheLimit),
		row("DUPLICATE_SUBMIT_SAME_KEY", 2_000, 4).expects("SUCCEEDED, same job").does(submitTwiceSameKey),
		row("DUPLICATE_SUBMIT_DIFFERENT_KEY", 2_000, 4).expects("SUCCEEDED, two jobs").does(submitTwiceDifferentKeys),
		row("WEBHOOK_SUCCESS", 2_000, 4).expects("SUCCEEDED, delivered").does(webhookAccepted),
		row("WEBHOOK_TIMEOUT", 2_000, 4).expects("SUCCEEDED, delivered on retry").does(webhookUnanswered),
		row("WEBHOOK_5XX", 2_000, 4).expects("SUCCEEDED, delivered on retry").does(webhookUnavailable),
		row("WEBHOOK_RETRIES_EXHAUSTED", 2_000, 4).expects("SUCCEEDED, delivery FAILED").does(webhookBroken),
		row("WEBHOOK_SLOW_RECEIVER", 2_000, 4).expects("SUCCEEDED, delivered late").does(webhookSlow),
		row("SCHEDULED_ON_TIME", 2_000, 4).does(scheduleOnTime),
		row("SCHEDULED_LATE_RECOVERY", 2_000, 4).does(scheduleAcrossOutage).acrossOutage(),
		row("SCHEDULED_FAR_FUTURE", 2_000, 4).expects("CREATED, then CANCELED").does(scheduleFarAhead),
		row("PAYLOAD_SMALL", 2_000, 1),
		row("PAYLOAD_MEDIUM", 2_000, 16),
		row("PAYLOAD_LARGE", 2_000, 256),
		row("PAYLOAD_INVALID", 0, 0).expects("REJECTED").does(submitRefused),
	}
}

// contractCodes are the error codes of section 14.
var contractCodes = map[string]bool{
	"RFA_REQUEST_MALFORMED": true, "RFA_REQUEST_UNSUPPORTED_MEDIA_TYPE": true,
	"RFA_REQUEST_METHOD_NOT_ALLOWED": true, "RFA_REQUEST_NOT_ACCEPTABLE": true,
	"RFA_REQUEST_PAYLOAD_TOO_LARGE": true, "RFA_REQUEST_RATE_LIMITED": true,
	"RFA_AUTH_INVALID_CREDENTIALS": true, "RFA_AUTH_TOKEN_EXPIRED": true,
	"RFA_AUTH_FORBIDDEN": true, "RFA_AUTH_API_KEY_DISABLED": true,
	"RFA_JOB_VALIDATION_FAILED": true, "RFA_JOB_NOT_FOUND": true, "RFA_JOB_CONFLICT": true,
	"RFA_EXEC_QUEUE_FULL": true, codeTimeout: true, "RFA_EXEC_IDEMPOTENCY_CONFLICT": true,
	codeWorkerUnavailable: true, "RFA_STORAGE_DB_ERROR": true, "RFA_STORAGE_UNAVAILABLE": true,
	"RFA_DEPENDENCY_TIMEOUT": true, codeConfigInvalid: true, "RFA_INTERNAL": true,
}

// Codes that decide something here.
const (
	codeTimeout           = "RFA_EXEC_TIMEOUT"
	codeWorkerUnavailable = "RFA_EXEC_WORKER_UNAVAILABLE"
	codeValidationFailed  = "RFA_JOB_VALIDATION_FAILED"
	codeConflict          = "RFA_JOB_CONFLICT"
	codeJobNotFound       = "RFA_JOB_NOT_FOUND"
	codeConfigInvalid     = "RFA_CONFIG_INVALID"
)
