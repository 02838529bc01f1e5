package main

import "cmp"

// tracingVariables are those of OpenTelemetry.
func (c *Config) tracingVariables() []variable {
	return []variable{
		{name: "OTEL_EXPORTER_OTLP_ENDPOINT", help: "where traces are sent, such as http://127.0.0.1:4318; unset: there are none",
			parse: endpoint(&c.Tracing.Endpoint)},
		{name: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", help: "the same for traces alone, with the whole path; it wins",
			parse: endpoint(&c.Tracing.TracesEndpoint)},
		{name: "OTEL_EXPORTER_OTLP_PROTOCOL", fallback: "http/protobuf", help: "http/protobuf or grpc",
			parse: oneOf(&c.Tracing.Protocol, protocols...)},
		{name: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", help: "the same for traces alone; it wins",
			parse: optional(oneOf(&c.Tracing.TracesProtocol, protocols...))},
		{name: "OTEL_EXPORTER_OTLP_HEADERS", help: "sent along with traces, such as api-key=...", secret: true, parse: unread},
		{name: "OTEL_TRACES_EXPORTER", fallback: "otlp", help: "otlp or none; none: no traces, whatever else is set",
			parse: oneOf(&c.Tracing.Exporter, "otlp", "none")},
		{name: "OTEL_TRACES_SAMPLER", fallback: "parentbased_always_on",
			help: "which requests are traced; parentbased_ follows what the client's traceparent says",
			parse: oneOf(&c.Tracing.Sampler, "always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
				"parentbased_traceidratio")},
		{name: "OTEL_TRACES_SAMPLER_ARG", fallback: "1", help: "the part of them, for traceidratio", parse: decimal(&c.Tracing.Ratio, 0, 1)},
		{name: "OTEL_SERVICE_NAME", fallback: "forgerun", help: "how traces name the service", parse: unread},
		{name: "OTEL_RESOURCE_ATTRIBUTES", help: "what else traces say of the process: key=value pairs, separated by commas", parse: pairs},
		{name: "OTEL_SDK_DISABLED", fallback: "false", help: "true: no traces, whatever else is set", parse: boolean(&c.Tracing.Disabled)},
	}
}

// Tracing is what is read of OpenTelemetry's own variables. Its library reads
// them too, and others of the standard; here they are checked.
type Tracing struct {
	Endpoint, TracesEndpoint string
	Protocol, TracesProtocol string
	Exporter, Sampler        string
	Ratio                    float64
	Disabled                 bool
}

// protocols are those of OTLP that traces can be sent by.
var protocols = []string{"http/protobuf", "grpc"}

// enabled reports whether traces are to be sent anywhere.
func (t Tracing) enabled() bool {
	return !t.Disabled && t.Exporter != "none" && (t.Endpoint != "" || t.TracesEndpoint != "")
}

// protocol is how they are sent.
func (t Tracing) protocol() string { return cmp.Or(t.TracesProtocol, t.Protocol) }
