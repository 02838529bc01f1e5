// Which address shows which page.
import * as audit from "./pages/audit.js";
import * as batches from "./pages/batches.js";
import * as bulk from "./pages/bulk.js";
import * as clients from "./pages/clients.js";
import * as deliveries from "./pages/deliveries.js";
import * as erasures from "./pages/erasures.js";
import * as failures from "./pages/failures.js";
import * as faults from "./pages/faults.js";
import * as job from "./pages/job.js";
import * as jobs from "./pages/jobs.js";
import * as newJob from "./pages/new.js";
import * as overview from "./pages/overview.js";
import * as queues from "./pages/queues.js";
import * as schedules from "./pages/schedules.js";
import * as search from "./pages/search.js";
import * as sessions from "./pages/sessions.js";
import * as system from "./pages/system.js";
import * as webhooks from "./pages/webhooks.js";
import * as workers from "./pages/workers.js";

// A function of (context, id) makes a page: {title, load(signal), view(data)}. Optional members: every, the ms between
// loads; often(data), which reports whether the data changes without events of the stream; and leave().
const PAGES = {
  overview: [overview.page], jobs: [jobs.page, job.page], new: [newJob.page], batches: [batches.page, batches.one], schedules: [schedules.page, schedules.one],
  workers: [workers.page], queues: [queues.page], webhooks: [webhooks.page, webhooks.one], deliveries: [deliveries.page, deliveries.one],
  clients: [clients.page, clients.one], failures: [failures.page], erasures: [erasures.page, erasures.one], bulk: [bulk.page, bulk.one], audit: [audit.page], search: [search.page], system: [system.page],
  sessions: [sessions.page, sessions.one], faults: [faults.page],
};

// NAV lists the groups of the menu and their pages, in order.
export const NAV = [
  [null, [["overview", "Overview"]]],
  ["Work", [["jobs", "Jobs"], ["new", "New job"], ["batches", "Batches"], ["schedules", "Schedules"], ["queues", "Queues"], ["failures", "Failures"], ["bulk", "Bulk changes"]]],
  ["Delivery", [["webhooks", "Webhooks"], ["deliveries", "Deliveries"]]],
  ["Service", [["workers", "Workers"], ["clients", "Clients"], ["audit", "Audit"], ["system", "System"]]],
  ["Test bed", [["sessions", "Sessions"], ["faults", "Faults"]]],
];

// NEEDS maps a page that not all servers have to the feature that it needs, a member of server in api.js.
export const NEEDS = { bulk: "bulk", sessions: "testbed", faults: "testbed" };

// parse splits an address into the page's name, the id and the query.
export function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  let [name, id = "", ...more] = path.split("/");
  try {
    id = decodeURIComponent(id);
  } catch { /* it is no id: the server says so */ }
  return { name: name || "overview", id, more, query: new URLSearchParams(query || "") };
}

// find returns the function that makes the page at an address, or undefined.
export function find({ name, id, more }) {
  return Object.hasOwn(PAGES, name) && more.length === 0 ? PAGES[name][id ? 1 : 0] : undefined;
}
