# Three images from one static binary:
#
#   docker build -t kstatd .                                        both pipelines in one process
#   docker build -t kube-state-metrics --target kube-state-metrics .  in place of kube-state-metrics
#   docker build -t statsd-exporter --target statsd_exporter .        in place of statsd_exporter
#
# They differ in the entry point alone: under the name of an original the program takes the original's flags, so its
# manifests and charts work with the image changed. Each image holds both links.

FROM rust:1.95.0-bookworm AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
# The image's own toolchain is the pinned one; rustup need not fetch what only developers use.
ENV RUSTUP_TOOLCHAIN=1.95.0
COPY . .
# Naming the target keeps the static flag away from build scripts and procedural macros.
RUN target=$(rustc --version --verbose | sed -n 's/^host: //p') \
 && RUSTFLAGS='-C target-feature=+crt-static' cargo build --locked --release --bin kstatd --target "$target" \
 && mkdir -p /root-fs/bin /root-fs/etc/ssl/certs \
 && cp "target/$target/release/kstatd" /root-fs/kstatd \
 && ldd /root-fs/kstatd 2>&1 | grep -Eq 'statically linked|not a dynamic executable' \
 && ln -s /kstatd /root-fs/kube-state-metrics \
 && ln -s /kstatd /root-fs/bin/statsd_exporter \
 && cp /etc/ssl/certs/ca-certificates.crt /root-fs/etc/ssl/certs/ca-certificates.crt \
 && cp LICENSE /root-fs/LICENSE

FROM scratch AS root
COPY --from=build /root-fs/ /
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
