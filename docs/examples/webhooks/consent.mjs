// Answers a service that asks, before it registers a webhook, whether this URL
// wants events (HTTP 1.1 Web Hooks for Event Delivery, section 4).

// consent answers the question whether this URL wants events of a service, and
// reports whether the request was one. known are the services' names.
export function consent(request, response, known) {
  if (request.method !== "OPTIONS") return false;
  const origin = (request.headers["webhook-request-origin"] ?? "").toLowerCase();
  response.setHeader("Allow", "POST, OPTIONS");
  if (known.includes(origin)) {
    response.setHeader("WebHook-Allowed-Origin", origin);
    response.setHeader("WebHook-Allowed-Rate", "*");
  }
  response.writeHead(204).end();
  return true;
}
