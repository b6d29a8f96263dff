//! Copies the Terraform module for a provider that is older than the one it is written for, and prints what it had to leave
//! out: arguments, blocks, resources, and the outputs that speak of those.
//!
//! ```text
//! terraform providers schema -json > schema.json
//! older_provider infra copy schema.json
//! ```

#![allow(clippy::print_stdout, reason = "it is a report")]

use std::{collections::BTreeSet, env, error::Error, fs, path::Path};

use hcl_edit::structure::{Block, Body, Structure};
use serde_json::Value;

/// Arguments and blocks that Terraform itself understands in any resource.
const META_ARGUMENTS: [&str; 6] = ["count", "depends_on", "for_each", "lifecycle", "provider", "provisioner"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [module, copy, schema] = &arguments[..] else { return Err("older_provider MODULE COPY SCHEMA".into()) };
    let schema: Value = serde_json::from_slice(&fs::read(schema)?)?;
    let known = &schema["provider_schemas"]["registry.terraform.io/hashicorp/aws"]["resource_schemas"];
    if !known.is_object() {
        return Err("the schema is not one of hashicorp/aws".into());
    }
    fs::create_dir_all(copy)?;
    let mut dropped = BTreeSet::new();
    let mut files = Vec::new();
    for entry in fs::read_dir(module)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "tf") {
            let body: Body = fs::read_to_string(&path)?.parse()?;
            files.push((path, body));
        }
    }
    let mut gone = BTreeSet::new();
    for (_, body) in &mut files {
        retain(body, |structure| match structure {
            Structure::Block(block) => resource(block, known, &mut dropped, &mut gone),
            Structure::Attribute(_) => true,
        });
    }
    for (path, mut body) in files {
        retain(&mut body, |structure| {
            let Structure::Block(block) = structure else { return true };
            let text = block.body.to_string();
            let speaks = block.ident.as_str() == "output" && gone.iter().any(|address: &String| text.contains(address));
            if speaks {
                dropped.insert(format!("output.{}", labels(block).join(".")));
            }
            !speaks
        });
        let name = path.file_name().ok_or("a file without a name")?;
        fs::write(Path::new(copy).join(name), without(body.to_string(), &gone))?;
    }
    for name in dropped {
        println!("{name}");
    }
    Ok(())
}

/// Replaces `one(…)` of a resource that is gone by `null`, as where the option that makes it is off.
fn without(mut text: String, gone: &BTreeSet<String>) -> String {
    for address in gone {
        let reference = format!("one({address}*].");
        while let Some(start) = text.find(&reference) {
            let end = text[start..].find(')').map_or(text.len(), |end| start + end + 1);
            text.replace_range(start..end, "null");
        }
    }
    text
}

/// Returns whether a block of a file stays. Removes from one that stays what the schema does not know.
fn resource(block: &mut Block, known: &Value, dropped: &mut BTreeSet<String>, gone: &mut BTreeSet<String>) -> bool {
    let labels = labels(block);
    let ("resource", [kind, name]) = (block.ident.as_str(), &labels[..]) else { return true };
    let address = format!("{kind}.{name}");
    let Some(schema) = known.get(kind) else {
        dropped.insert(address.clone());
        gone.insert(format!("{address}["));
        return false;
    };
    strip(&mut block.body, &schema["block"], &address, true, dropped);
    true
}

/// Removes from a body what its schema does not know.
fn strip(body: &mut Body, schema: &Value, address: &str, meta: bool, dropped: &mut BTreeSet<String>) {
    retain(body, |structure| {
        let name = match structure {
            Structure::Attribute(attribute) => attribute.key.as_str().to_owned(),
            // dynamic "name" { content { … } } is a block of that name
            Structure::Block(block) if block.ident.as_str() == "dynamic" => labels(block).concat(),
            Structure::Block(block) => block.ident.as_str().to_owned(),
        };
        if meta && META_ARGUMENTS.contains(&name.as_str()) {
            return true;
        }
        let path = format!("{address}.{name}");
        let nested = &schema["block_types"][&name]["block"];
        let stays = match structure {
            Structure::Attribute(_) => schema["attributes"].get(&name).is_some() || nested.is_object(),
            Structure::Block(_) => nested.is_object(),
        };
        if !stays {
            dropped.insert(path);
            return false;
        }
        if let Structure::Block(block) = structure {
            if block.ident.as_str() == "dynamic" {
                for content in block.body.get_blocks_mut("content") {
                    strip(&mut content.body, nested, &path, false, dropped);
                }
            } else {
                strip(&mut block.body, nested, &path, false, dropped);
            }
        }
        true
    });
}

fn retain(body: &mut Body, mut keep: impl FnMut(&mut Structure) -> bool) {
    for i in (0..body.len()).rev() {
        let mut structure = body.remove(i);
        if keep(&mut structure) {
            body.insert(i, structure);
        }
    }
}

fn labels(block: &Block) -> Vec<String> {
    block.labels.iter().map(|label| label.as_str().to_owned()).collect()
}
