//! The names that Python statements bind, and their values.

use super::INDEX;
use super::grammar::plain;
use crate::code::scopes::{Bound, Scopes, Step};
use crate::code::syntax::{Id, Opens, Syntax};
use crate::code::value::MAX_PATH_LEN;

/// Maximum number of targets of one assignment.
const MAX_TARGETS: usize = 256;

pub(super) fn bind(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) {
    bind_some(syntax, id, scopes).unwrap_or_default();
}

fn bind_some(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) -> Option<()> {
    let scope = syntax.node(id).scope;
    let name_of = |id: Id| plain(syntax.text(id));
    match syntax.kind(id) {
        "import_statement" | "import_from_statement" | "future_import_statement" => bind_import(syntax, id, scopes),
        "dotted_name" => syntax.children(id).for_each(|part| scopes.mark(part)),
        "attribute" => scopes.mark(syntax.field(id, "attribute")?),
        "assignment" => match syntax.field(id, "right") {
            Some(right) => bind_target(syntax, syntax.field(id, "left")?, Some((right, Vec::new())), scopes),
            None => {
                let made = syntax.field(id, "type").map(|made| (made, vec![Step::Made]));
                bind_target(syntax, syntax.field(id, "left")?, made, scopes);
            }
        },
        "augmented_assignment" => bind_target(syntax, syntax.field(id, "left")?, None, scopes),
        "named_expression" => {
            bind_target(syntax, syntax.field(id, "name")?, Some((syntax.field(id, "value")?, Vec::new())), scopes);
        }
        "for_statement" | "for_in_clause" => {
            let right = syntax.field(id, "right")?;
            bind_target(syntax, syntax.field(id, "left")?, Some((right, vec![Step::Element])), scopes);
        }
        "as_pattern" => {
            let value = *syntax.parts(id).first()?;
            let target = syntax.field(id, "alias")?;
            for target in syntax.children(target) {
                bind_target(syntax, target, Some((value, Vec::new())), scopes);
            }
        }
        "except_clause" => bind_target(syntax, syntax.field(id, "alias")?, None, scopes),
        "function_definition" => {
            let name = syntax.field(id, "name")?;
            scopes.mark(name);
            scopes.bind(syntax, scope, &name_of(name), Bound::Function(id), id);
            if syntax.scope_opens(scope) == Opens::Class {
                scopes.bind_own(&name_of(name), Bound::Function(id));
            }
        }
        "class_definition" => {
            let name = syntax.field(id, "name")?;
            scopes.mark(name);
            scopes.bind(syntax, scope, &name_of(name), Bound::Unknown, id);
        }
        "return_statement" => scopes.returns(syntax.function_around(id)?, *syntax.parts(id).first()?),
        "lambda" => scopes.returns(id, syntax.field(id, "body")?),
        "parameters" | "lambda_parameters" => {
            for parameter in syntax.children(id) {
                bind_parameter(syntax, parameter, scopes);
            }
        }
        "keyword_argument" => scopes.mark(syntax.field(id, "name")?),
        "delete_statement" => {
            for part in syntax.children(id).flat_map(|part| std::iter::once(part).chain(syntax.children(part))) {
                if syntax.kind(part) == "identifier" {
                    scopes.mark(part);
                    scopes.unbind(&name_of(part));
                }
            }
        }
        "global_statement" | "nonlocal_statement" => {
            for part in syntax.children(id) {
                scopes.mark(part);
                scopes.share(scope, &name_of(part));
            }
        }
        "case_pattern" => {
            let capture = *syntax.parts(id).first()?;
            if syntax.kind(capture) == "dotted_name" && !syntax.text(capture).contains('.') {
                scopes.bind(syntax, scope, &name_of(capture), Bound::Unknown, id);
            }
        }
        _ => {}
    }
    Some(())
}

fn bind_parameter(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) {
    let name = match syntax.kind(id) {
        "typed_parameter" => syntax.children(id).next(),
        "default_parameter" | "typed_default_parameter" => syntax.field(id, "name"),
        _ => Some(id),
    };
    let Some(name) = name else { return };
    bind_target(syntax, name, None, scopes);
    if let Some(made) = syntax.field(id, "type") {
        bind_target(syntax, name, Some((made, vec![Step::Made])), scopes);
    }
    if let Some(value) = syntax.field(id, "value") {
        bind_target(syntax, name, Some((value, Vec::new())), scopes);
    }
}

/// Binds a name or a pattern of names.
fn bind_target(syntax: &Syntax<'_>, target: Id, value: Option<(Id, Vec<Step>)>, scopes: &mut Scopes) {
    let mut waiting = vec![(target, value)];
    let mut seen = 0;
    while let Some((target, value)) = waiting.pop() {
        seen += 1;
        if seen > MAX_TARGETS {
            scopes.overflow = true;
            return;
        }
        let bound = |value: Option<(Id, Vec<Step>)>| match value {
            Some((id, steps)) => Bound::Value(id, steps),
            None => Bound::Unknown,
        };
        match syntax.kind(target) {
            "identifier" => {
                scopes.mark(target);
                // A comprehension has a scope of its own, in which its names and assignments inside
                // of it are bound.
                let scope = syntax.node(target).scope;
                scopes.bind(syntax, scope, &plain(syntax.text(target)), bound(value), target);
            }
            "attribute" => {
                let object = syntax.field(target, "object").map(|object| syntax.text(object));
                if let (Some("self" | "cls"), Some(name)) = (object, syntax.field(target, "attribute")) {
                    scopes.bind_own(&plain(syntax.text(name)), bound(value));
                }
            }
            "pattern_list" | "tuple_pattern" | "list_pattern" | "tuple" | "list" | "expression_list" => {
                let targets: Vec<Id> = syntax.children(target).take(1 + MAX_TARGETS).collect();
                let values: Option<Vec<Id>> = match &value {
                    Some((id, steps)) if steps.is_empty() && is_written_out(syntax, *id) => {
                        Some(syntax.children(*id).take(MAX_TARGETS).collect())
                    }
                    _ => None,
                };
                for (at, target) in targets.into_iter().enumerate() {
                    let part = match (&values, &value) {
                        (Some(values), _) => values.get(at).map(|part| (*part, Vec::new())),
                        (None, Some((id, steps))) => {
                            let mut steps = steps.clone();
                            steps.push(Step::Element);
                            (steps.len() < 8).then_some((*id, steps))
                        }
                        (None, None) => None,
                    };
                    waiting.push((target, part));
                }
            }
            "list_splat_pattern" | "dictionary_splat_pattern" | "as_pattern_target" | "parenthesized_expression" => {
                waiting.extend(syntax.children(target).take(1).map(|inner| (inner, None)));
            }
            _ => {}
        }
    }
}

fn is_written_out(syntax: &Syntax<'_>, id: Id) -> bool {
    matches!(syntax.kind(id), "expression_list" | "tuple" | "list")
}

/// The name and alias of each import of a statement.
fn imported(syntax: &Syntax<'_>, id: Id) -> Vec<(String, Option<String>)> {
    let spaceless = |id: Id| plain(&syntax.text(id).split_whitespace().collect::<String>());
    let mut names = Vec::new();
    for child in syntax.children(id).filter(|child| syntax.node(*child).field == Some("name")) {
        if syntax.kind(child) == "aliased_import" {
            let (name, alias) = (syntax.field(child, "name"), syntax.field(child, "alias"));
            names.extend(name.map(|name| (spaceless(name), alias.map(spaceless))));
        } else {
            names.push((spaceless(child), None));
        }
    }
    names
}

fn module_of(syntax: &Syntax<'_>, id: Id) -> Option<String> {
    let module = syntax.field(id, "module_name")?;
    // The module becomes the prefix of every imported name, so its length is limited.
    Some(syntax.text(module).split_whitespace().flat_map(str::chars).take(1 + MAX_PATH_LEN).collect())
}

fn bind_import(syntax: &Syntax<'_>, id: Id, scopes: &mut Scopes) {
    let scope = syntax.node(id).scope;
    let module = module_of(syntax, id);
    for (name, alias) in imported(syntax, id) {
        let (bound, path) = match (&module, alias) {
            (Some(module), alias) => (alias.unwrap_or_else(|| name.clone()), format!("{module}.{name}")),
            (None, Some(alias)) => (alias, name),
            (None, None) => {
                let root = name.split('.').next().unwrap_or_default().to_owned();
                (root.clone(), root)
            }
        };
        // A member of `builtins` has the same path as the builtin.
        let path = path.strip_prefix("builtins.").map(str::to_owned).unwrap_or(path);
        scopes.bind(syntax, scope, &bound, Bound::Path(path), id);
    }
    for child in syntax.children(id) {
        match syntax.kind(child) {
            "wildcard_import" => {
                module.iter().for_each(|module| scopes.star(module, INDEX.knows(module)));
            }
            "aliased_import" => syntax.children(child).for_each(|part| scopes.mark(part)),
            _ => {}
        }
    }
}

pub(super) fn imports(syntax: &Syntax<'_>, id: Id) -> Vec<String> {
    match syntax.kind(id) {
        "import_statement" => imported(syntax, id).into_iter().map(|(name, _)| name).collect(),
        "import_from_statement" => {
            let Some(module) = module_of(syntax, id) else { return Vec::new() };
            let names = imported(syntax, id).into_iter().map(|(name, _)| format!("{module}.{name}"));
            std::iter::once(module.clone()).chain(names.collect::<Vec<_>>()).collect()
        }
        _ => Vec::new(),
    }
}
