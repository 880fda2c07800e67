//! One text of one language: read, bound, resolved, and held against the rules.

use tree_sitter::Language;

use super::grammar::{Call, Grammar, Shape};
use super::parse::parse;
use super::resolve::{Resolver, UNKNOWN, Value};
use super::scopes::Scopes;
use super::syntax::Syntax;
use crate::risk::findings::Findings;
use crate::risk::rule::Use;

/// `first` is the number of the text's first line.
pub(crate) fn inspect<G: Grammar>(language: &Language, text: &str, first: usize, findings: &mut Findings) {
    let index = G::index();
    let Some(tree) = parse(language, text) else {
        findings.add_by_id(index, G::TOO_COMPLEX, first);
        return;
    };
    let syntax = Syntax::new(&tree, text, G::opens);
    if let Some(row) = syntax.fault {
        findings.add_by_id(index, G::SYNTAX, first + row);
    }
    let mut scopes = Scopes::default();
    for at in 0..syntax.len() {
        let Ok(at) = u32::try_from(at) else { break };
        G::bind(&syntax, super::syntax::Id(at), &mut scopes);
    }
    let resolver = Resolver::<G>::new(&syntax, &scopes);
    for id in syntax.order.iter().copied() {
        let line = first + syntax.node(id).row;
        for module in G::imports(&syntax, id) {
            index.find(&module, Use::Imported).into_iter().for_each(|rule| findings.add(rule, line));
        }
        G::inspect_node(&syntax, id, line, findings);
        if scopes.is_marked(id) || !G::refers(syntax.kind(id)) {
            continue;
        }
        let shape = G::shape(&syntax, id);
        for value in resolver.resolve(id).iter() {
            if let Value::Path(path) = value
                && path != UNKNOWN
            {
                index.find(path, Use::Mentioned).into_iter().for_each(|rule| findings.add(rule, line));
            }
        }
        let Shape::Call(callee, nodes) = shape else { continue };
        let arguments: Vec<Vec<Value>> = nodes.iter().take(64).map(|node| resolver.argument(*node, 0)).collect();
        for value in resolver.resolve(callee).iter() {
            let Value::Path(path) = value else { continue };
            index.find(path, Use::Called).into_iter().for_each(|rule| findings.add(rule, line));
            G::inspect_call(&syntax, &Call { path, arguments: &arguments, nodes: &nodes, line }, findings);
        }
    }
    if resolver.overflow.get() {
        findings.add_by_id(index, G::TOO_COMPLEX, first);
    }
}
