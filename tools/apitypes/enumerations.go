package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/oapi-codegen/oapi-codegen/v2/pkg/codegen"
)

func (o *options) enumerations() string {
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.Constants)) {
		schema, _ := o.schemas[name].(map[string]any)
		values, _ := schema["enum"].([]any)
		meanings, _ := schema["x-enumDescriptions"].(map[string]any)
		description, _ := schema["description"].(string)
		constants := "\n" + codegen.StringToGoComment(description) + "\nconst (\n"
		list := fmt.Sprintf("\n// %ss are all there are.\nvar %[1]ss = []%[1]s{\n", o.Lists[name])
		for _, v := range values {
			value, _ := v.(string)
			constant := o.Constants[name] + codegen.ToCamelCaseWithInitialisms(strings.ToLower(strings.TrimPrefix(value, "RFA_")))
			constants += fmt.Sprintf("%s = %q", constant, value)
			if meaning, ok := meanings[value].(string); ok {
				constants += " // " + meaning
				list += fmt.Sprintf("{%s, %q},\n", constant, meaning)
			}
			constants += "\n"
		}
		text.WriteString(constants + ")\n")
		if o.Lists[name] != "" {
			text.WriteString(list + "}\n")
		}
	}
	return text.String()
}
