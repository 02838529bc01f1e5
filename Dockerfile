# syntax=docker/dockerfile:1
# Two images:
#   docker build -t forgerun .                      the roles: docker run forgerun api | worker | deliverer | migrate
#   docker build -t forgerun-dev --target dev .     everything in one container, with Postgres and Redis

FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
ARG COMMIT=
ARG DATE=
ARG TARGETOS
ARG TARGETARCH
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    build=github.com/forgerun/forgerun/internal/version; \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -buildvcs=false -trimpath \
    -ldflags "-s -w -X $build.number=$VERSION -X $build.commit=$COMMIT -X $build.date=$DATE" \
    -o /out/ ./cmd/forgerun

# For trying it out, and for tests of clients:
#   docker run --rm -p 8080:8080 -p 8081:8081 forgerun-dev
# It prints a client id, an API key and the operator's token. With "-v forgerun:/data" these and the jobs survive restarts. Not for
# production: one process, one Postgres, no TLS.
FROM debian:bookworm-slim AS dev
ARG DEBIAN_FRONTEND=noninteractive
# No cluster and no service, since the program runs both servers as child processes. Packages are the current ones at build time:
# they include Debian 12's fixes, and Debian 12 does not change the versions of Postgres and Redis.
RUN mkdir -p /etc/postgresql-common/createcluster.d \
    && echo "create_main_cluster = false" > /etc/postgresql-common/createcluster.d/none.conf \
    && apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates postgresql redis-server \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 forgerun \
    && useradd --system --uid 10001 --gid forgerun --no-create-home --home-dir /data --shell /usr/sbin/nologin forgerun \
    && install -d -o forgerun -g forgerun -m 0700 /data
COPY --from=build /out/forgerun /usr/local/bin/
# Both listeners are reachable from outside the container. The operators' listener therefore needs a token, which the first start
# creates and prints. The public URL matches the port mapping of the command above.
ENV FORGERUN_HTTP_ADDR=0.0.0.0:8080 \
    FORGERUN_ADMIN_ADDR=0.0.0.0:8081 \
    FORGERUN_PUBLIC_URL=http://127.0.0.1:8080 \
    FORGERUN_DATA_DIR=/data
EXPOSE 8080 8081
WORKDIR /data
VOLUME /data
USER forgerun:forgerun
# Works for each command that process 1 may run: dev, the proxy, a role.
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=3 CMD ["/usr/local/bin/forgerun", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/forgerun"]
CMD ["dev"]

# The program alone. This small image can also judge clients of any API, for instance of a server on the host:
#   docker run --rm --add-host host.docker.internal:host-gateway -p 9000:9000 forgerun \
#     proxy --listen 0.0.0.0:9000 --target http://host.docker.internal:3000
FROM gcr.io/distroless/static-debian12:nonroot AS roles
ARG VERSION=dev
LABEL org.opencontainers.image.title="ForgeRun" \
      org.opencontainers.image.description="Job-execution HTTP service with synthetic, deterministic jobs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=build /out/forgerun /usr/local/bin/

# The API is reachable from outside the container. The admin listener stays on loopback, where it needs no token and the health
# check reaches it; to publish it, set FORGERUN_ADMIN_ADDR and FORGERUN_ADMIN_TOKEN.
ENV FORGERUN_HTTP_ADDR=0.0.0.0:8080 \
    FORGERUN_ADMIN_ADDR=127.0.0.1:8081
EXPOSE 8080 9000
# The image's user "nonroot" by number, because kubelets reject names with runAsNonRoot.
USER 65532:65532
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 CMD ["/usr/local/bin/forgerun", "healthcheck"]
ENTRYPOINT ["/usr/local/bin/forgerun"]
CMD ["api"]
