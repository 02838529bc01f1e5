package main

import (
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/forgerun/forgerun/job"
	"github.com/forgerun/forgerun/repo/repotest"
)

// checkInvariants checks what must hold after any fault, in Postgres and in Redis.
func (s *stack) checkInvariants() {
	s.t.Helper()
	s.awaitCount("no job is held", 0, `SELECT count(*) FROM jobs WHERE state IN ('ASSIGNED', 'RUNNING')`)
	wrong, err := repotest.Violations(s.ctx(), s.db)
	require.NoError(s.t, err)
	jobs := s.jobRows()
	for _, w := range append(wrong, s.requestViolations(jobs)...) {
		s.t.Error(w)
	}
	s.checkTasks(jobs)
}

type jobRow struct {
	ID, RequestID, BatchID, ScheduleID string
	State                              job.State
	Attempt                            int
}

func (s *stack) jobRows() map[string]*jobRow {
	s.t.Helper()
	rows, err := s.db.Query(s.ctx(), `SELECT job_id::text, request_id, coalesce(batch_id::text, ''), coalesce(schedule_id::text, ''),
		state, attempt FROM jobs`)
	require.NoError(s.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[jobRow])
	require.NoError(s.t, err)
	jobs := map[string]*jobRow{}
	for _, j := range all {
		jobs[j.ID] = j
	}
	return jobs
}

func (s *stack) requestViolations(jobs map[string]*jobRow) (wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.accepted {
		if jobs[id] == nil {
			wrong = append(wrong, "INVARIANT job "+id+" was accepted and does not exist")
		}
	}
	requests := map[string]string{}
	for id, j := range jobs {
		if other, twice := requests[j.RequestID]; twice && j.ScheduleID == "" && (j.BatchID == "" || j.BatchID != jobs[other].BatchID) {
			wrong = append(wrong, "INVARIANT jobs "+id+" and "+other+" come from one request")
		}
		requests[j.RequestID] = id
		if !s.sent[j.RequestID] {
			wrong = append(wrong, "INVARIANT job "+id+" comes from a request that was never sent")
		}
	}
	return wrong
}

// checkTasks waits until every task in Redis belongs to a waiting job. It ignores archived tasks, because asynq archives the task of a
// failed attempt. The job of an active task may have ended, because a killed worker's tasks stay active for a minute or two.
func (s *stack) checkTasks(jobs map[string]*jobRow) {
	s.t.Helper()
	if !s.workerRuns() {
		return
	}
	var left []string
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		left = nil
		for name, state := range s.tasks() {
			parts := strings.Split(name, ":")
			j := jobs[parts[0]]
			waits := j != nil && j.State.Waiting() && strconv.Itoa(j.Attempt) == parts[1]
			if state == "archived" && !waits {
				continue
			}
			if j == nil || (state != "active" && !waits) {
				left = append(left, name+" is "+state)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			break
		}
	}
	require.Empty(s.t, left, "INVARIANT each task has a job that waits")
}
