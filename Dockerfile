# syntax=docker/dockerfile:1
# One image with both programs. The command chooses the role:
#   docker run IMAGE api | worker | migrate up

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -buildvcs=false -trimpath -ldflags "-s -w -X main.version=${VERSION}" \
    -o /out/ ./cmd/forgerun ./cmd/simulator

FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=dev
LABEL org.opencontainers.image.title="ForgeRun" \
      org.opencontainers.image.description="Job-execution HTTP service with synthetic, deterministic jobs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /out/forgerun /out/simulator /usr/local/bin/

# The API listens for the world outside the container. The admin listener stays
# on loopback, where it needs no token and the health check reaches it; to
# publish it, set FORGERUN_ADMIN_ADDR and FORGERUN_ADMIN_TOKEN.
ENV FORGERUN_HTTP_ADDR=0.0.0.0:8080 \
    FORGERUN_ADMIN_ADDR=127.0.0.1:8081
EXPOSE 8080
USER nonroot:nonroot
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["/usr/local/bin/forgerun", "healthcheck", "--url", "http://127.0.0.1:8081/readyz"]
ENTRYPOINT ["/usr/local/bin/forgerun"]
CMD ["api"]
