// Package scenario says what a run of the simulator sends: the file that
// describes it, and the plan of requests that follows from the file and a seed.
//
// A scenario is YAML, read strictly: every mistake is reported with its place and
// with what is allowed. The plan is drawn from the seed alone, so the same
// scenario and seed give the same requests, whatever the service answers.
// Nothing here sends anything.
package scenario
