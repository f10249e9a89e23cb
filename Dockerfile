# Three images from one static binary:
#
#   docker build -t kstatd .                                        both sides in one process
#   docker build -t kube-state-metrics --target kube-state-metrics .  replaces kube-state-metrics
#   docker build -t statsd-exporter --target statsd_exporter .        replaces statsd_exporter
#
# They differ only in the entry point: under the name of an original the program takes the original's flags, so the original's
# manifests and charts work with the image changed. Each image contains both links.
#
#   docker build -t kstatd-demo --target demo .                       a simulated cluster, not part of a release:
#   docker run --rm -p 8080:8080 kstatd-demo                          then open http://localhost:8080/status
#
#   docker build --target debug --output . .                          ./kstatd.debug, the line tables for a debugger
#
# To set the revision that the program and the labels report: --build-arg KSTATD_REVISION=$(git rev-parse HEAD).
#
# .ci/build-stage runs the stages `build` and `build-demo` without an engine; it knows COPY, ARG and RUN. deploy/release/images.py
# reads the configuration of the stages that descend from `root`.

# The only image from a registry. `deploy/release.sh bases` pins it by digest. The images of a release do not use it; they are
# assembled from scratch.
ARG RUST_IMAGE=rust:1.95.0-bookworm
FROM ${RUST_IMAGE} AS toolchain
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The image's toolchain is the pinned one; rustup does not download components that only developers use.
ENV RUSTUP_TOOLCHAIN=1.95.0

FROM toolchain AS build
COPY Cargo.toml Cargo.lock ./
COPY tests/differential/Cargo.toml tests/differential/Cargo.toml
COPY tests/double/Cargo.toml tests/double/Cargo.toml
COPY tests/endurance/Cargo.toml tests/endurance/Cargo.toml
COPY tests/mutation/Cargo.toml tests/mutation/Cargo.toml
COPY benches/compare/Cargo.toml benches/compare/Cargo.toml
COPY benches/instructions/Cargo.toml benches/instructions/Cargo.toml
COPY deploy/build.sh deploy/build.sh
RUN deploy/build.sh dependencies
ARG KSTATD_REVISION=unknown
COPY docs/compatibility.md docs/compatibility.md
COPY src src
COPY tests/bounds.csv tests/bounds.csv
RUN deploy/build.sh shipped
COPY LICENSE LICENSE
COPY deploy/root-fs.sh deploy/root-fs.sh
RUN deploy/root-fs.sh shipped/kstatd root-fs LICENSE

FROM build AS build-demo
COPY tests/double/src tests/double/src
RUN deploy/build.sh demo shipped-demo
RUN deploy/root-fs.sh shipped-demo/kstatd root-fs-demo LICENSE

FROM scratch AS debug
COPY --from=build /src/shipped/kstatd.debug /

# The version is that of Cargo.toml.
FROM scratch AS base
ARG KSTATD_VERSION=0.1.0
ARG KSTATD_REVISION=unknown
USER 65534:65534
LABEL org.opencontainers.image.vendor="The kstatd authors" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.url="https://github.com/kstatd/kstatd" \
      org.opencontainers.image.source="https://github.com/kstatd/kstatd" \
      org.opencontainers.image.documentation="https://github.com/kstatd/kstatd/blob/main/README.md" \
      org.opencontainers.image.version="${KSTATD_VERSION}" \
      org.opencontainers.image.revision="${KSTATD_REVISION}"

FROM base AS demo
COPY --from=build-demo /src/root-fs-demo/ /
EXPOSE 8080/tcp 8081/tcp 9125/tcp 9125/udp
LABEL org.opencontainers.image.title="kstatd-demo" \
      org.opencontainers.image.description="kstatd with a simulated cluster"
ENTRYPOINT ["/kstatd"]
CMD ["demo"]

FROM base AS root
COPY --from=build /src/root-fs/ /

FROM root AS kube-state-metrics
EXPOSE 8080/tcp 8081/tcp
LABEL org.opencontainers.image.title="kube-state-metrics" \
      org.opencontainers.image.description="kstatd in place of kube-state-metrics"
ENTRYPOINT ["/kube-state-metrics"]

FROM root AS statsd_exporter
EXPOSE 9102/tcp 9125/tcp 9125/udp
LABEL org.opencontainers.image.title="statsd_exporter" \
      org.opencontainers.image.description="kstatd in place of statsd_exporter"
ENTRYPOINT ["/bin/statsd_exporter"]

FROM root AS kstatd
EXPOSE 8080/tcp 8081/tcp 9125/tcp 9125/udp
LABEL org.opencontainers.image.title="kstatd" \
      org.opencontainers.image.description="Metrics of Kubernetes objects and StatsD lines for Prometheus"
ENTRYPOINT ["/kstatd"]
