// Reads the event stream at FORGERUN_URL with a popular library, as its documentation shows, and prints the name of each event. It
// reconnects until it is stopped.
const url = `${process.env.FORGERUN_URL}/v1/events`;
const headers = { Authorization: `Bearer ${process.env.FORGERUN_API_KEY}` };
const names = ["position", "job-created", "job-queued", "job-assigned", "job-running", "job-succeeded"];
const pause = 200; // ms, for libraries without their own pause

const readers = {
  async eventsource() {
    const { EventSource } = await import("eventsource");
    const source = new EventSource(url, { fetch: (input, init) => fetch(input, { ...init, headers: { ...init.headers, ...headers } }) });
    for (const name of names) source.addEventListener(name, () => console.log(name));
  },

  async "fetch-event-source"() {
    globalThis.window = globalThis; // the library expects a browser
    globalThis.document = { hidden: false, addEventListener() {}, removeEventListener() {} };
    const { fetchEventSource } = await import("@microsoft/fetch-event-source");
    const again = () => { throw new Error("the stream has ended"); };
    await fetchEventSource(url, {
      headers, openWhenHidden: true, onmessage: ({ event }) => event && console.log(event), onclose: again, onerror: () => pause,
    });
  },

  async "eventsource-parser"() {
    const { createParser } = await import("eventsource-parser");
    let last;
    for (;;) {
      try {
        const parser = createParser({
          onEvent({ id, event }) {
            if (id !== undefined) last = id;
            console.log(event);
          },
        });
        const response = await fetch(url, { headers: { ...headers, Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) } });
        const decoder = new TextDecoder();
        for await (const piece of response.body) parser.feed(decoder.decode(piece, { stream: true }));
      } catch {
        // the connection was lost, or refused
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  },
};

await readers[process.argv[2]]();
