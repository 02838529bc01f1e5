package docs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDocsPageText(t *testing.T) {
	t.Parallel()
	require.Equal(t, [][]span{
		{{Text: "One "}, {Text: "code", Code: true}, {Text: " and\n"}, {Text: "bold", Bold: true}, {Text: "."}},
		{{Text: "Two <b>."}},
	}, paragraphs("One `code` and\n**bold**.\n\nTwo <b>.\n"))
}
