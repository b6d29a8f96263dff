# The nameservice as one static binary, for x86-64 and arm64:
#
#   docker build --tag nameservice .
#   docker run --publish 127.0.0.1:8080:8080 --volume nameservice:/data nameservice
#
# The container listens on every address of its own, and lets everybody do everything (--insecure): publish its port on loopback, as
# above, or give it keys instead: docker run … nameservice serve --listen 0.0.0.0:8080 --data /data --jwks URL --issuer … --audience …

FROM rust:1.95-alpine3.22 AS build
# The toolchain of the image, whatever rust-toolchain.toml names.
ENV RUSTUP_TOOLCHAIN=1.95
# SQLite and ring are compiled from C.
# hadolint ignore=DL3018
RUN apk add --no-cache build-base
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/build/target \
    cargo build --locked --profile server --package nameservice-cli \
    && cp target/server/nameservice / \
    && mkdir /data

FROM scratch
COPY --from=build /nameservice /nameservice
# Certificates for tables, buckets and issuers over https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /data /data
COPY LICENSE /LICENSE
USER 65532:65532
VOLUME /data
EXPOSE 8080
ENTRYPOINT ["/nameservice"]
CMD ["serve", "--listen", "0.0.0.0:8080", "--data", "/data", "--insecure"]
