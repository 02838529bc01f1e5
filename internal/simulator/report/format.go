package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/forgerun/forgerun/internal/simulator/judge"
)

var english = message.NewPrinter(language.English)

// grouped writes 1234567 as 1,234,567.
func grouped(n int64) string { return english.Sprintf("%d", n) }

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// brief writes a time with three digits, in the unit that fits: 12.3 ms.
func brief(d time.Duration) string {
	switch {
	case d <= 0:
		return "0"
	case d < time.Millisecond:
		return digits(float64(d)/float64(time.Microsecond)) + " µs"
	case d < time.Second:
		return digits(float64(d)/float64(time.Millisecond)) + " ms"
	case d < 2*time.Minute:
		return digits(d.Seconds()) + " s"
	}
	return clockTime(d)
}

// digits keeps three of them, and no more than two decimals.
func digits(f float64) string {
	decimals := 2
	for limit := 10.0; f >= limit && decimals > 0; limit *= 10 {
		decimals--
	}
	return strconv.FormatFloat(f, 'f', decimals, 64)
}

// clockTime writes 1:02:03, or 2:03 below an hour.
func clockTime(d time.Duration) string {
	s := int64(max(d, 0).Round(time.Second) / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// rate writes how many there were per second.
func rate(n int64, d time.Duration) string {
	if d <= 0 {
		return "0.0/s"
	}
	perSecond := float64(n) / d.Seconds()
	if perSecond >= 1000 {
		return grouped(int64(perSecond+0.5)) + "/s"
	}
	return strconv.FormatFloat(perSecond, 'f', 1, 64) + "/s"
}

// listed shows the numbers that are not 0, but for those of some names.
func listed(numbers map[string]int64, without ...string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[name] != 0 && !slices.Contains(without, name) {
			parts = append(parts, strings.ToLower(judge.Printable(name))+" "+grouped(numbers[name]))
		}
	}
	return strings.Join(parts, "  ")
}

func total(numbers map[string]int64) int64 {
	var n int64
	for _, one := range numbers {
		n += one
	}
	return n
}

// ms is what JSON has for a length of time.
func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}
