package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	domain "github.com/forgerun/forgerun/job"
)

// constants reads the values of a file's constants, in their order.
func constants(t *testing.T, name string) (values []string) {
	t.Helper()
	file := must(parser.ParseFile(token.NewFileSet(), name, nil, 0))(t)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, value := range spec.Values {
			text := must(strconv.Unquote(value.(*ast.BasicLit).Value))(t)
			values = append(values, text)
		}
		return true
	})
	return values
}

// The library imports nothing of the service, so its constants are copies.
func TestConstantsAreTheServices(t *testing.T) {
	t.Parallel()
	var kinds, codes []string
	for _, kind := range domain.AllKinds() {
		kinds = append(kinds, string(kind))
	}
	for _, spec := range domain.Codes {
		codes = append(codes, string(spec.Code))
	}
	require.ElementsMatch(t, kinds, constants(t, "kinds.go"))
	require.ElementsMatch(t, codes, constants(t, "codes.go"))
}
