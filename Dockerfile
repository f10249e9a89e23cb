# Three images from one static binary:
#
#   docker build -t kstatd .                                        both pipelines in one process
#   docker build -t kube-state-metrics --target kube-state-metrics .  in place of kube-state-metrics
#   docker build -t statsd-exporter --target statsd_exporter .        in place of statsd_exporter
#
# They differ in the entry point alone: under the name of an original the program takes the original's flags, so its
# manifests and charts work with the image changed. Each image holds both links. The line tables, for a debugger:
#
#   docker build --target debug --output . .                          ./kstatd.debug
#
# The revision that the program tells comes with --build-arg KSTATD_REVISION=$(git rev-parse HEAD).
#
# .ci/build-stage runs the stage `build` without an engine; it knows COPY, ARG and RUN.

FROM rust:1.95.0-bookworm AS toolchain
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The image's own toolchain is the pinned one; rustup need not fetch what only developers use.
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
