// Package stack is the ForgeRun that the simulator runs against: its own
// Postgres and Redis, api, webhooks and worker processes, and the faults that are
// done to them.
//
// Whatever ends although nobody asked for it is started again. Connections can
// lead through proxies, which cut and delay them. Nothing here knows what a job
// is: processes are started, watched and disturbed, never judged.
//
// After Close nothing runs, and of the files only the logs are left.
package stack
