//go:build slow

package main

import "testing"

func TestJobsSurviveRareQueueLoss(t *testing.T) { t.Parallel(); testLosses(t, rareLosses) }
