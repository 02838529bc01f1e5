//go:build !slow

package timetable_test

import "testing"

// zonesToCount are zones that change at midnight and by half an hour. With -tags slow, all zones are counted.
func zonesToCount(*testing.T) []string {
	return []string{"Africa/Cairo", "Asia/Beirut", "Australia/Lord_Howe"}
}
