//! The Terraform modules under `infra/modules`, as far as Rust has to agree with them. They are parsed, never evaluated: what is looked
//! for here is written out there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    sync::LazyLock,
};

use hcl_edit::{
    expr::{Expression, Object, ObjectKey},
    structure::{Block, Body},
};

use crate::proxy::Action;

/// One entry of `local.functions`.
#[derive(Debug, Default)]
pub struct Function {
    /// Route keys of the gateway: `PUT /v1/heads/{address+}`.
    pub routes: BTreeSet<String>,
    /// The same for what is served at a function URL.
    pub url: BTreeSet<String>,
    /// `read`, `write` or `admin`; `None` if the gateway asks for no scope.
    pub scope: Option<String>,
    /// Whether the function checks tokens itself.
    pub verifies_tokens: bool,
    /// What its role may do, by the names of `local.resources`.
    pub actions: Actions,
}

impl Function {
    /// Whether its role may do this.
    pub fn allows(&self, resource: &str, action: &str) -> bool {
        self.actions.get(resource).is_some_and(|actions| actions.contains(action))
    }
}

/// IAM actions by the resource that they are for: `table`, `feed`, an index by its name, …
pub type Actions = BTreeMap<String, BTreeSet<String>>;

/// Every block of every file of the module `nameservice`.
pub static MODULE: LazyLock<Vec<Block>> = LazyLock::new(|| blocks_of("nameservice"));

/// The same for the module that makes tables of read models.
pub static READ_MODEL: LazyLock<Vec<Block>> = LazyLock::new(|| blocks_of("read-model"));

fn blocks_of(module: &str) -> Vec<Block> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../infra/modules").join(module);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "tf"));
    files.sort();
    let parse = |path: &PathBuf| {
        let body: Body =
            fs::read_to_string(path).unwrap().parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        body.into_blocks().collect::<Vec<_>>()
    };
    files.iter().flat_map(parse).collect()
}

/// The list of functions.
pub static FUNCTIONS: LazyLock<BTreeMap<String, Function>> = LazyLock::new(|| {
    let functions = local("functions").as_object().unwrap();
    functions.iter().map(|(name, function)| (key(name), entry(function.expr().as_object().unwrap()))).collect()
});

/// A local value, as it is written.
pub fn local(name: &str) -> &'static Expression {
    local_of(&MODULE, name)
}

/// A local value of a module.
pub fn local_of<'m>(module: &'m [Block], name: &str) -> &'m Expression {
    let mut found = module
        .iter()
        .filter(|block| block.ident.as_str() == "locals")
        .filter_map(|block| block.body.get_attribute(name));
    let value = &found.next().unwrap_or_else(|| panic!("infra/ has no local.{name}")).value;
    assert!(found.next().is_none(), "local.{name} occurs twice");
    value
}

/// A resource, as it is written.
pub fn resource(kind: &str, name: &str) -> &'static Body {
    block_of(&MODULE, "resource", &[kind, name])
}

/// A block of a module with these labels.
pub fn block_of<'m>(module: &'m [Block], ident: &str, labels: &[&str]) -> &'m Body {
    let labelled = |block: &&Block| {
        block.ident.as_str() == ident && block.labels.iter().map(|label| label.as_str()).eq(labels.iter().copied())
    };
    &module.iter().find(labelled).unwrap_or_else(|| panic!("infra/ has no {ident} {labels:?}")).body
}

/// The entry whose route takes a request, as the gateway would find it: an exact route before a greedy one.
pub fn function_of(method: &str, path: &str) -> Option<&'static str> {
    let path = path.split('?').next().unwrap_or_default();
    let takes = |route: &String| match route.split_once(' ') {
        Some((verb, template)) if verb == method => match template.split_once('{') {
            Some((start, _)) => path.strip_prefix(start).is_some_and(|rest| !rest.is_empty()),
            None => template == path,
        },
        _ => false,
    };
    let of = |(name, function): (&'static String, &'static Function)| {
        function.routes.iter().chain(&function.url).any(takes).then_some(name.as_str())
    };
    FUNCTIONS.iter().find_map(of)
}

/// The strings of a list of them.
pub fn strings(expression: &Expression) -> BTreeSet<String> {
    let list = expression.as_array().unwrap_or_else(|| panic!("{expression:?} is no list"));
    list.iter().map(|text| text.as_str().unwrap_or_else(|| panic!("{text:?} is no string")).to_owned()).collect()
}

/// A key of an object, quoted or not.
pub fn key(key: &ObjectKey) -> String {
    match key {
        ObjectKey::Ident(ident) => ident.as_str().to_owned(),
        ObjectKey::Expression(expression) => match expression {
            Expression::Variable(ident) => ident.as_str().to_owned(),
            other => other.as_str().unwrap_or_else(|| panic!("{other:?} is no key")).to_owned(),
        },
    }
}

fn entry(object: &Object) -> Function {
    let mut function = Function::default();
    for (name, value) in object {
        let value = value.expr();
        match key(name).as_str() {
            "routes" => function.routes = strings(value),
            "url" => function.url = strings(value),
            "scope" => function.scope = Some(value.as_str().unwrap().to_owned()),
            "verifies_tokens" => function.verifies_tokens = value.as_bool().unwrap(),
            "actions" => {
                let actions = value.as_object().unwrap();
                function.actions = actions.iter().map(|(name, list)| (key(name), strings(list.expr()))).collect();
            }
            "memory" | "timeout" | "concurrency" | "option" => {}
            other => panic!("what does `{other}` mean in local.functions?"),
        }
    }
    function
}

/// What a role must allow for an action, as `local.resources` names it: `main` is the nameservice table.
pub fn named(main: &str, action: &Action) -> (String, String) {
    let resource = match &action.index {
        Some(index) => index.clone(),
        None if action.table == main => "table".to_owned(),
        None if action.table.strip_prefix(main) == Some("-feed") => "feed".to_owned(),
        None if action.table.strip_prefix(main) == Some("-views") => "views".to_owned(),
        None => panic!("{} is no table of the deployment", action.table),
    };
    (resource, action.name.clone())
}
