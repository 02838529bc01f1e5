package figures

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPicture(t *testing.T) {
	t.Parallel()
	svg := Picture([]Bars{
		{"Jobs per second, <sustained>", "%.0f", []Bar{{"ours", 3000}, {"theirs", 6000}, {"none", 0}}},
		{"CPU", "%.2f s", []Bar{{"ours", 0.5}, {"theirs", 0.25}}},
	})
	d := xml.NewDecoder(strings.NewReader(svg))
	var widths, texts []string
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		switch token := token.(type) {
		case xml.StartElement:
			for _, a := range token.Attr {
				if token.Name.Local == "rect" && a.Name.Local == "width" {
					widths = append(widths, a.Value)
				}
			}
		case xml.CharData:
			texts = append(texts, strings.TrimSpace(string(token)))
		}
	}
	require.Equal(t, []string{"210", "420", "420", "210"}, widths)
	require.Contains(t, texts, "Jobs per second, <sustained>")
	require.Contains(t, texts, "0.25 s")
	require.NotContains(t, texts, "none")
}
