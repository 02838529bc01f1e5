// A TypeScript client of the service at FORGERUN_URL. Two generators made its types
// from the service's OpenAPI document: openapi-typescript (./types) and
// @hey-api/openapi-ts (./sdk). If it compiles, the types have all members that it
// reads. It exits with 1 if a response does not match the types.
import type { components, paths } from './types'
import * as sdk from './sdk'
import { client } from './sdk/client.gen'

declare const process: { env: Record<string, string | undefined>; exitCode: number }

type Schemas = components['schemas']
type Json<T> = T extends { content: { 'application/json': infer Body } } ? Body : never
type GetAnswer<P extends keyof paths> = paths[P] extends { get: { responses: { 200: infer Answer } } } ? Json<Answer> : never

const service = process.env['FORGERUN_URL'] ?? ''
let key = ''

function expect(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Error(what)
}

// get reads a path with the types of openapi-typescript.
async function get<P extends keyof paths>(path: P, values: Record<string, string> = {}, headers: Record<string, string> = {}) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => values[name] ?? '')
  const answer = await fetch(service + filled, { headers: { Authorization: `Bearer ${key}`, ...headers } })
  expect(answer.status === 200, `${path}: ${answer.status}`)
  return (await answer.json()) as GetAnswer<P>
}

async function register() {
  const made = await sdk.createClient({ throwOnError: true })
  const issued = await sdk.createKey({ path: { id: made.data.client_id }, body: { rotate: false }, throwOnError: true })
  expect(issued.data.api_key !== null && issued.data.key_id !== '', 'a key is shown once')
  key = issued.data.api_key
  client.setConfig({ auth: () => key })
}

// ended waits until a job is final.
async function ended(id: string): Promise<Schemas['Job']> {
  for (let round = 0; round < 10; round++) {
    const job = await get('/v1/jobs/{id}', { id }, { Prefer: 'wait=10' })
    expect('job_id' in job, 'a job, not an outcome document')
    if (job.outcome !== null) return job
    const waits: string = job.waiting?.reason ?? `${job.progress?.percentage ?? 0} %`
    console.log(job.state, waits)
  }
  throw new Error('the job does not end')
}

async function succeed() {
  const accepted = await sdk.submitJob({
    body: { type: 'EXECUTE', work_kind: 'SUCCESS_FAST', params: { customer: 42 } },
    headers: { 'Idempotency-Key': '"typescript-1"' },
    throwOnError: true,
  })
  expect('state' in accepted.data && accepted.data.state === 'QUEUED', 'a receipt')
  const job = await ended(accepted.data.job_id)
  expect(job.state === 'SUCCEEDED' && job.failure === undefined, 'it succeeded')
  expect(job.params?.['customer'] === 42, 'parameters are kept as sent')
  expect(job.definition?.duration_ms === 1000, 'what it does')
  expect(job.result?.state === 'AVAILABLE' && job.links.result === job.result.download_url, 'the result is there')

  const size: number = job.result.size_bytes
  const bytes = await fetch(service + job.result.download_url, { headers: { Authorization: `Bearer ${key}` } })
  expect((await bytes.arrayBuffer()).byteLength === size, 'the whole result')

  const again = await sdk.getJob({ path: { id: job.job_id }, throwOnError: true })
  expect('links' in again.data && again.data.links.events !== '', 'both generators know the same job')
}

async function fail() {
  const accepted = await sdk.submitJob({ body: { type: 'EXECUTE', work_kind: 'FAIL_IMMEDIATE' }, throwOnError: true })
  expect('job_id' in accepted.data, 'a receipt')
  const { failure, job_id: id, links } = await ended(accepted.data.job_id)
  expect(failure !== undefined && links.report !== undefined, 'it failed')
  const what: [Schemas['Code'], Schemas['Stage'], 'FAILED' | 'TIMED_OUT', string, boolean] =
    [failure.code, failure.processingStage, failure.jobStatus, failure.detail, failure.retryable]
  console.log(...what)

  const report = await get('/v1/jobs/{id}/report', { id })
  const last = report.events[report.events.length - 1]
  expect(last?.event_name === 'job.failed' && last.data['work_kind'] === 'FAIL_IMMEDIATE', 'its history')
  const attempts = await get('/v1/jobs/{id}/attempts', { id })
  expect(attempts.data[0]?.failure?.title === failure.title && attempts.page.next_cursor === null, 'its attempts')
}

async function refuse() {
  const batch = await sdk.submitBatch({
    body: { jobs: [{ item_id: 'one', type: 'EXECUTE', work_kind: 'SUCCESS_FAST' }, { item_id: 'two', type: 'DEFERRED' }] },
    throwOnError: true,
  })
  const refused = batch.data.jobs.find((item) => 'failure' in item)
  expect(refused !== undefined && refused.failure.violations?.[0]?.pointer === '/jobs/1/execution_at', 'a refused item')

  const wrong = await sdk.submitJob({ body: { type: 'DEFERRED' } })
  expect(wrong.error !== undefined && wrong.error.code === 'RFA_JOB_VALIDATION_FAILED', 'a problem document')
  expect((wrong.error.violations?.length ?? 0) > 0, 'with all violations')
}

async function subscribe() {
  const made = await sdk.registerWebhook({ body: { url: 'http://127.0.0.1:10/', events: ['job.failed'] }, throwOnError: true })
  expect(made.data.secret !== null && made.data.secret.startsWith('whsec_') && made.data.enabled, 'a secret, shown once')
  const listed = await get('/v1/webhooks')
  expect(listed.data[0]?.url === made.data.url && listed.data[0].links.deliveries !== '', 'the webhook')
}

async function main() {
  client.setConfig({ baseUrl: service })
  await register()
  await succeed()
  await fail()
  await refuse()
  await subscribe()
  console.log('ok')
}

main().catch((error: unknown) => {
  console.error(error)
  process.exitCode = 1
})
