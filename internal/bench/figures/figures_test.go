package figures

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each side after the other, and the other way round next.
func TestSidesTakeTurns(t *testing.T) {
	t.Parallel()
	order := ""
	side := func(name string) Side[int] {
		return Side[int]{Name: name, Measure: func() (int, error) {
			order += name
			return len(order), nil
		}}
	}
	got, err := InTurns(2, side("a"), side("b"), side("c"))
	require.NoError(t, err)
	require.Equal(t, "abccba", order)
	require.Equal(t, [][]int{{1, 6}, {2, 5}, {3, 4}}, [][]int{got[0].Samples, got[1].Samples, got[2].Samples})

	broken := errors.New("no")
	_, err = InTurns(1, side("a"), Side[int]{Name: "b", Measure: func() (int, error) { return 0, broken }})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "b: ")
}

// Ratios are of the rounds, not of the medians; a side that has no such value has no line.
func TestTable(t *testing.T) {
	t.Parallel()
	sides := []Side[float64]{
		{Name: "ours", Samples: []float64{10, 40, 3000}}, {Name: "theirs", Samples: []float64{20, 40, 1000}},
		{Name: "none", Samples: []float64{0, 0, 0}},
	}
	list := []Figure{
		New("rate", sides, func(v float64) float64 { return v }), New("half", sides[:1], func(v float64) float64 { return v / 2 }),
		New("nothing", sides[2:], func(v float64) float64 { return v }),
	}
	var b strings.Builder
	require.NoError(t, WriteTable(&b, list))
	require.Equal(t, `| figure | measured | compared with | ratio        |
| ---    | ---      | ---           | ---          |
| rate   | 40       | 40 (theirs)   | 1 (0.5 to 3) |
| half   | 20       |               |              |
`, b.String())
}

func TestNumbersAreShort(t *testing.T) {
	t.Parallel()
	for v, text := range map[float64]string{0.03456: "0.0346", 7: "7", 99.96: "100", 123.4: "123", 12345.6: "12346"} {
		require.Equal(t, text, number(v))
	}
	require.Zero(t, median(nil))
	require.Equal(t, 2.5, median([]float64{4, 1, 3, 2}))
}

func TestPicture(t *testing.T) {
	t.Parallel()
	svg := Picture([]Figure{
		{"Jobs per second, <sustained>", []Values{{"ours", []float64{3000}}, {"theirs", []float64{6000}}}},
		{"alone", []Values{{"ours", []float64{1}}}},
	})
	require.Contains(t, svg, "Jobs per second, &lt;sustained&gt;")
	require.Contains(t, svg, `<rect class="f" x="90" y="28" width="210"`)
	require.Contains(t, svg, `<rect class="o" x="90" y="46" width="420"`)
	require.NotContains(t, svg, "alone", "it compares nothing")
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		if _, err := d.Token(); err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
	}
}
