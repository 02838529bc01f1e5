// Checks the OpenAPI and AsyncAPI documents of a service with common tools:
//
//   node lint.mjs http://localhost:8080
//
// It prints each error and exits with 1 if there is one. @redocly/openapi-core is
// the engine of @redocly/cli, here in its last version for Node 18, which Debian 12
// has.
import { createConfig, lint } from '@redocly/openapi-core'
import SwaggerParser from '@apidevtools/swagger-parser'
import { Parser } from '@asyncapi/parser'

const service = process.argv[2]
const errors = []

async function redocly(name) {
  const config = await createConfig({ extends: ['recommended'] })
  for (const found of await lint({ ref: `${service}/${name}`, config })) {
    if (found.severity === 'error') {
      errors.push(`redocly: ${name}: ${found.ruleId}: ${found.message} (${found.location.map((l) => l.pointer).join(', ')})`)
    }
  }
}

async function swagger(name) {
  try {
    await SwaggerParser.validate(`${service}/${name}`, { resolve: { http: { safeUrlResolver: false } } })
  } catch (error) {
    errors.push(`swagger-parser: ${name}: ${error.message}`)
  }
}

async function asyncapi(name) {
  const text = await (await fetch(`${service}/${name}`)).text()
  const { document, diagnostics } = await new Parser().parse(text)
  const failure = 0
  for (const found of diagnostics.filter((d) => d.severity === failure)) {
    errors.push(`@asyncapi/parser: ${name}: ${found.message} (/${found.path.join('/')})`)
  }
  if (document === undefined) errors.push(`@asyncapi/parser: ${name}: no document`)
}

await redocly('openapi.yaml')
await redocly('asyncapi.yaml')
await swagger('openapi.yaml')
await asyncapi('asyncapi.yaml')
for (const error of errors) console.error(error)
process.exitCode = errors.length > 0 ? 1 : 0
