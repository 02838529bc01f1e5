//go:build slow

package main

import "testing"

func TestJobsEndAfterRareLossesOfTheQueue(t *testing.T) { t.Parallel(); testLosses(t, rareLosses) }
