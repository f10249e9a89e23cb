# Three images from one static binary:
#
#   docker build -t kstatd .                                        both sides in one process
#   docker build -t kube-state-metrics --target kube-state-metrics .  replaces kube-state-metrics
#   docker build -t statsd-exporter --target statsd_exporter .        replaces statsd_exporter
#
# They differ only in the entry point: under the name of an original the program takes the original's flags, so the original's
# manifests and charts work with the image changed. Each image contains both links. The line tables, for a debugger:
#
#   docker build --target debug --output . .                          ./kstatd.debug
#
# To set the revision that the program reports: --build-arg KSTATD_REVISION=$(git rev-parse HEAD).
#
# .ci/build-stage runs the stage `build` without an engine; it knows COPY, ARG and RUN.

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
COPY tests/double/Cargo.toml tests/double/Cargo.toml
COPY tests/endurance/Cargo.toml tests/endurance/Cargo.toml
COPY benches/compare/Cargo.toml benches/compare/Cargo.toml
COPY benches/instructions/Cargo.toml benches/instructions/Cargo.toml
COPY deploy/build.sh deploy/build.sh
RUN deploy/build.sh dependencies
ARG KSTATD_REVISION=unknown
COPY docs/compatibility.md docs/compatibility.md
COPY src src
RUN deploy/build.sh shipped
COPY LICENSE LICENSE
COPY deploy/root-fs.sh deploy/root-fs.sh
RUN deploy/root-fs.sh shipped/kstatd root-fs LICENSE

FROM scratch AS debug
COPY --from=build /src/shipped/kstatd.debug /

FROM scratch AS root
COPY --from=build /src/root-fs/ /
USER 65534:65534

FROM root AS kube-state-metrics
EXPOSE 8080/tcp 8081/tcp
ENTRYPOINT ["/kube-state-metrics"]

FROM root AS statsd_exporter
EXPOSE 9102/tcp 9125/tcp 9125/udp
ENTRYPOINT ["/bin/statsd_exporter"]

FROM root AS kstatd
EXPOSE 8080/tcp 8081/tcp 9125/tcp 9125/udp
ENTRYPOINT ["/kstatd"]
