#!/usr/bin/env bash
# An object with one member takes as much memory in serde_json 1.0.145 as one with eleven.
#
# A `Value` keeps the members of an object in a BTreeMap, whose smallest node has room for eleven, and a list that is parsed has room for
# four values. So 32 KB of JSON with 4,096 objects of one member take 2.7 MB, 83 times their text, and a limit on the bytes of a document
# says little about the memory of whoever parses it. With the feature `preserve_order`, which some dependency may turn on for all, a value
# takes 72 bytes instead of 32, and an object of eleven members 2.5 times as much as without.
#
# Output:
#   without features: 0 takes 32 bytes, 16 times its JSON
#   without features: [0] takes 160 bytes, 40 times its JSON
#   without features: {1 member} takes 665 bytes, 83 times its JSON
#   without features: {11 members} takes 675 bytes, 10 times its JSON
#   with preserve_order: 0 takes 72 bytes, 36 times its JSON
#   with preserve_order: [0] takes 360 bytes, 90 times its JSON
#   with preserve_order: {1 member} takes 437 bytes, 55 times its JSON
#   with preserve_order: {11 members} takes 1699 bytes, 25 times its JSON
#
# Needs Rust on a 64-bit machine, and a network. Takes half a minute. Fails if the behaviour has changed.
set -euo pipefail
script=$(realpath "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >src/main.rs <<'RUST'
use serde_json::Value;

fn main() {
    let members = |count: usize| {
        let members: Vec<String> = (0..count).map(|n| format!("\"{}\":0", (b'a' + n as u8) as char)).collect();
        format!("{{{}}}", members.join(","))
    };
    for (name, value) in [
        ("0", "0".to_owned()),
        ("[0]", "[0]".to_owned()),
        ("{1 member}", members(1)),
        ("{11 members}", members(11)),
    ] {
        let text = format!("[{}]", vec![value; 4096].join(","));
        let mut parsed = Value::Null;
        let taken = allocation_counter::measure(|| parsed = serde_json::from_str(&text).unwrap()).bytes_current;
        let times = taken as f64 / text.len() as f64;
        println!("{}: {name} takes {} bytes, {times:.0} times its JSON", std::env::args().nth(1).unwrap(), taken / 4096);
    }
}
RUST
for features in '' '"preserve_order"'; do
    cat >Cargo.toml <<TOML
[package]
name = "measured"
version = "0.0.0"
edition = "2021"

[dependencies]
allocation-counter = "=0.8.1"
serde_json = { version = "=1.0.145", features = [$features] }
TOML
    what="with preserve_order"
    [ -n "$features" ] || what="without features"
    cargo run --quiet --release -- "$what"
done | tee output
sed -n '/^# Output:/,/^#$/s/^#   //p' "$script" | diff - output
