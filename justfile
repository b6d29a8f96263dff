# The ten commands of a day. `just` is at https://just.systems; each line works without it, too.

# Shows this list.
default:
    @just --list

# Runs the service on http://127.0.0.1:8080, data in ./.nameservice
serve *options:
    cargo run --package nameservice-cli -- serve {{ options }}

# Compiles everything.
check:
    cargo check --workspace --all-targets

# Runs the tests whose names contain the words, all of them without words.
test *words:
    cargo test --workspace --test suite -- {{ words }}

# Formats everything that has a formatter here.
format:
    cargo fmt --all
    terraform -chdir=infra fmt -recursive

# Lints everything, as CI does.
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Runs the contract suite on every backend, and prints which tests ran where.
contract:
    cargo contract

# Writes what is made from something else: OpenAPI, references, clients, tables.
generate *parts:
    .ci/generate {{ parts }}

# Serves the book on http://127.0.0.1:3000
book:
    mdbook serve docs

# What is wrong most often, within ten minutes.
fast:
    .ci/run fast

# Runs steps of CI, all of them without names; `just ci --list` names them.
ci *steps:
    .ci/run {{ steps }}
