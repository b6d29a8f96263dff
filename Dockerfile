# The nameservice as one static binary, for x86-64 and arm64:
#
#   docker build --tag nameservice .
#   mkdir -p keys && nameservice token keys --key key.pem --jwks keys/jwks.json
#   docker run --publish 8080:8080 --volume nameservice:/data --volume ./keys:/keys:ro nameservice
#
# The container listens on every address of its own, for callers with a token of a key in /keys/jwks.json. Another way to let callers in:
# docker run … nameservice serve --listen 0.0.0.0:8080 --data /data --jwks URL --issuer … --audience …

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
    && mkdir /data /backups \
    && chmod g=u /data /backups

FROM scratch
COPY --from=build /nameservice /nameservice
# Certificates for tables, buckets and issuers over https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# For the user below, and for any user of group 0, which OpenShift gives to containers.
COPY --from=build --chown=65532:0 /data /data
COPY --from=build --chown=65532:0 /backups /backups
COPY LICENSE /LICENSE
USER 65532:65532
VOLUME /data /backups
EXPOSE 8080
ENTRYPOINT ["/nameservice"]
CMD ["serve", "--listen", "0.0.0.0:8080", "--data", "/data", "--jwks", "/keys/jwks.json", "--issuer", "nameservice", "--audience", "nameservice"]
