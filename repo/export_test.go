package repo

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Bounds of the batcher, for tests.
const (
	MaxFlushItems = maxFlushItems
	Flushers      = flushers

	MaxBatchInserts = maxBatchInserts
)

// BatchKeysTaken gives the number of keys that callers hold.
func (s *Store) BatchKeysTaken() int {
	s.batchKeys.mu.Lock()
	defer s.batchKeys.mu.Unlock()
	return len(s.batchKeys.locks)
}

// ScanUTC makes a test's own connections hand out times as the store does.
var ScanUTC = scanUTC

// Pool gives tests the store's own connections, to exhaust or count them.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// Queued gives the number of items that wait for a flusher.
func (s *Store) Queued(operation string) int {
	switch operation {
	case "insert":
		return s.inserts.queued()
	case "claim", "start", "finish":
		return s.steps.queued()
	case "cancel":
		return s.cancels.queued()
	case "record":
		return s.records.queued()
	}
	panic("unknown operation " + operation)
}

func (b *batcher[T, R]) queued() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// Statements are the SQL texts whose plans are tested.
var Statements = map[string]string{
	"insert": insertJobs, "step": stepJobs, "stepWithin": stepJobsWithin, "resumeThrottled": resumeThrottled,
	"putJobsAside": putJobsAside, "jobsAside": jobsAside, "resumeJobs": resumeJobs,
	"claimedBefore": claimedBefore, "whyUnchanged": whyUnchanged, "readHeld": readHeld, "cancel": cancelJobs,
	"emit": emitEvent, "retry": retryJobs, "retryAnyway": retryAnyway, "release": releaseJobs, "queueDue": queueDue, "waiting": waitingJobs,
	"redispatch": redispatchJobs, "load": countLoad, "unfinished": unfinishedJobs, "loadByClient": countLoadByClient,
	"countDue": countDue, "backlog": readBacklog, "orphans": orphanedJobs,
	"cleanJobs": cleanJobs, "cleanResults": cleanResults, "cleanIdempotencyKeys": cleanIdempotencyKeys,
	"cleanTombstones": cleanTombstones, "cleanClientEvents": cleanClientEvents, "cleanBatches": cleanBatches,
	"jobEvents": jobEvents, "eventSeqs": eventSeqs,
	"clientEvents": clientEvents, "latestPositions": latestPositions, "endedBatches": endedBatches,
	"listByClient": listByClient, "listByBatch": listByBatch, "listBySchedule": listBySchedule, "delete": deleteJob,
	"readBatch": readBatch, "openJobs": openJobs,
	"readyAfter": readyAfter, "readyGiven": readyGiven, "lockGiven": lockGiven, "completeBatches": completeBatches,

	"insertRuns": insertRuns, "countSchedules": countSchedules, "insertSchedule": insertSchedule, "readSchedule": readSchedule,
	"lockSchedule": lockSchedule, "updateSchedule": updateSchedule, "deleteSchedule": deleteSchedule, "listSchedules": listSchedules,
	"listAllSchedules": listAllSchedules, "nextLook": nextLook, "dueSchedules": dueSchedules, "dueSchedulesInTime": dueSchedulesInTime,
	"advanceSchedules": advanceSchedules, "deferSchedules": deferSchedules, "eraseSchedules": eraseSchedules,

	"insertBulk": insertBulk, "countOpenBulks": countOpenBulks, "readBulk": readBulk,
	"listBulksOfClient": listBulksOfClient, "listBulks": listBulks, "listBulkItems": listBulkItems, "listBulkItemsWith": listBulkItemsWith,
	"openBulks": openBulks, "countBulkOfClient": countBulkOfClient, "countBulkOfBatch": countBulkOfBatch, "countBulkOfAll": countBulkOfAll,
	"gatherBulkOfClient": gatherBulkOfClient, "gatherBulkOfBatch": gatherBulkOfBatch, "gatherBulkOfAll": gatherBulkOfAll,
	"lockOpenBulk": lockOpenBulk, "nextBulkItems": nextBulkItems, "bulkJobs": bulkJobs, "deleteItems": deleteItems,
	"recordItems": recordItems, "finishBulk": finishBulk, "abortBulk": abortBulk,
	"removeFaults": removeFaults, "insertFaults": insertFaults, "lockFaults": lockFaults, "listFaults": listFaults,
	"countFaults": countFaults, "applyFault": applyFault,
	"readClockMove": readClockMove, "moveClock": moveClock, "forgetMoves": forgetMoves, "anyMoved": anyMoved, "anyDue": anyDue,
	"stepInTime": stepJobsInTime, "stepWithinInTime": stepJobsWithinInTime, "emitInTime": emitEventInTime, "queueDueInTime": queueDueInTime,
	"startSession": startSession, "forgetSessions": forgetSessions, "endSession": endSession, "listSessions": listSessions,
	"recordExchange": recordExchange, "sessionExchanges": sessionExchanges, "sessionJobs": sessionJobs,
	"forgetAnswers": forgetAnswers, "expireResult": expireResult,
	"sessionDeliveries": sessionDeliveries, "sessionKeys": sessionKeys, "eraseSessions": eraseSessions, "eraseExchanges": eraseExchanges,

	"cleanBulkItems": cleanBulkItems, "cleanBulks": cleanBulks,

	"lockErasedClient": lockErasedClient, "erasureOfClient": erasureOfClient, "insertErasure": insertErasure,
	"revokeErasedKeys": revokeErasedKeys, "readErasure": readErasure, "listErasures": listErasures, "openErasures": openErasures,
	"lockErasure": lockErasure, "moveErasure": moveErasure, "finishErasure": finishErasure, "erasureSettled": erasureSettled,
	"stopErasedBulks": stopErasedBulks, "stopErasedWebhooks": stopErasedWebhooks, "lookErasedJobs": lookErasedJobs,
	"chooseErasedJobs": chooseErasedJobs, "hasErasedJobs": hasErasedJobs, "eraseWaitingDeliveries": eraseWaitingDeliveries,
	"eraseJobsDeliveries": eraseJobsDeliveries, "eraseWebhooksDeliveries": eraseWebhooksDelivery,
	"countErasedAttempts": countErasedAttempts, "jobsHaveDeliveries": jobsHaveDeliveries, "webhooksHaveDeliveries": webhooksHaveDeliveries,
	"eraseJobs": eraseJobs, "countErasedJobs": countErasedJobs, "lookErasedWebhooks": lookErasedWebhooks, "eraseWebhooks": eraseWebhooks,
	"eraseBatches": eraseBatches, "eraseTombstones": eraseTombstones, "lockErasedItems": lockErasedItems, "eraseItems": eraseItems,
	"eraseBulks": eraseBulks, "eraseClientEvents": eraseClientEvents, "eraseEvents": eraseEvents, "eraseAnswers": eraseAnswers,
	"eraseKeys": eraseKeys, "eraseClient": eraseClient, "countDeliveries": countDeliveries, "countAllWebhooks": countAllWebhooks,
	"countBatches": countBatches, "countTombstones": countTombstones, "countItems": countItems, "countErased": countErased,
	"eraseFaults": eraseFaults,

	"readWebhook": readWebhook, "findAnswer": findAnswer, "listWebhooks": listWebhooks, "countWebhooks": countWebhooks,
	"updateWebhook": updateWebhook, "provenURLs": provenURLs, "deleteWebhook": deleteWebhook, "rotateSecret": rotateSecret,
	"listByWebhook": listByWebhook, "listFailed": listFailed, "listByJob": listByJob, "readDelivery": readDelivery, "redeliver": redeliver,
	"redeliverFailed": redeliverFailed, "testWebhook": testWebhook, "findReplayStart": findReplayStart, "replayEvents": replayEvents,
	"dueEndpoints": dueEndpoints, "dueClients": dueClients, "waitingDeliveries": waitingDeliveries,
	"claimDeliveries": claimDeliveries, "recordDeliveries": recordDeliveries,
	"releaseDeliveries": releaseDeliveries, "reclaimDeliveries": reclaimDeliveries, "failOrphans": failOrphans,
	"unpublishedOutcomes": unpublishedOutcomes, "markPublished": markPublished, "republishOutcomes": republishOutcomes,
	"cleanDeliveries": cleanDeliveries, "cleanClientDeliveries": cleanClientDeliveries, "cleanLogs": cleanLogs,
	"cleanWebhooks": cleanWebhooks, "removePublished": removePublished,
	"readMark": readMark, "auditBegin": auditBegin, "auditEnd": auditEnd, "auditList": auditList, "cleanAudit": cleanAudit,
	"readAnyJob": readAnyJob, "readJobOwner": readJobOwner, "allWorkers": listAllWorkers, "groupQueues": groupQueues,
	"groupFailures": groupFailures, "allClients": listAllClients, "anyWebhooks": anyWebhooks, "oneWebhook": oneWebhook,
	"clientsWebhooks": clientsWebhooks, "anyDeliveries": anyDeliveries, "webhookDeliveries": webhookDeliveries,
	"jobDeliveries": jobDeliveries, "readAnyDelivery": readAnyDelivery, "allBatches": listAllBatches, "readAnyBatch": readAnyBatch,
	"readSystem": readSystem, "readSituation": readSituation,
	"missingHistory": missingHistory, "writeHistory": writeHistory, "rollUpHistory": rollUpHistory, "readHistory": readHistory,
	"sumHistory": sumHistory, "cleanHistory": cleanHistory,
	"anyJobs": anyJobs.list, "clientJobs": clientJobs.list, "batchJobs": batchJobs.list, "endedJobs": endedJobs.list,
	"queuedJobs": queuedJobs.list, "scheduledJobs": scheduledJobs.list, "heldJobs": heldJobs.list,
	"anyJobsCount": anyJobs.count, "clientJobsCount": clientJobs.count, "batchJobsCount": batchJobs.count, "endedJobsCount": endedJobs.count,
	"queuedJobsCount": queuedJobs.count, "scheduledJobsCount": scheduledJobs.count, "heldJobsCount": heldJobs.count,
	"moveStrandedJobs": moveStrandedJobs, "moveStrandedDeliveries": moveStrandedDeliveries, "endStrandedLeases": endStrandedLeases,
}

// Verb names a statement for its span.
var Verb = verb

// AnyLabelAhead is the look for labels that no transaction can have given.
var AnyLabelAhead = anyLabelAhead

// KeepOrder makes flushes of new jobs wait for so long for the ones before them.
func (s *Store) KeepOrder(wait time.Duration) { s.order.wait = wait }

// CreatedNow is created_at of a job that is submitted now: Postgres' time, or a
// little less.
func (s *Store) CreatedNow() time.Time {
	now, _ := s.order.clock.now()
	return now
}
