//! Assesses one text of one language: parses it, resolves its names and matches them with the
//! rules.

use tree_sitter::Language;

use super::grammar::{Call, Grammar, Shape};
use super::parse::{Steps, parse};
use super::resolve::Resolver;
use super::scopes::Scopes;
use super::syntax::Syntax;
use super::value::{UNKNOWN, Value};
use crate::findings::{Findings, Lines};
use crate::rule::Use;
use crate::work::Work;

/// Work to match a path with the rules.
const PER_PATH: usize = 10;

pub(crate) fn inspect<G: Grammar>(language: &Language, text: &str, lines: Lines, work: &Work, findings: &mut Findings) {
    let index = G::index();
    let Some(tree) = parse(language, text, Steps::Short, work) else {
        findings.add_by_id(index, G::TOO_COMPLEX, lines.of(0));
        return;
    };
    let syntax = Syntax::new(&tree, text, work, G::opens);
    if let Some(row) = syntax.fault {
        findings.add_by_id(index, G::SYNTAX, lines.of(row));
    }
    let mut scopes = Scopes::default();
    for id in syntax.ids().take_while(|_| !work.is_spent()) {
        G::bind(&syntax, id, &mut scopes);
    }
    let resolver = Resolver::<G>::new(&syntax, &scopes);
    for id in syntax.order.iter().copied().take_while(|_| !work.is_spent()) {
        let line = lines.of(syntax.row_of_name(id));
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
                && &**path != UNKNOWN
                && work.spend(PER_PATH)
            {
                index.find(path, Use::Mentioned).into_iter().for_each(|rule| findings.add(rule, line));
            }
        }
        let Shape::Call(callee, nodes) = shape else { continue };
        let arguments = resolver.arguments(&nodes, 0);
        for value in resolver.resolve(callee).iter() {
            let Value::Path(path) = value else { continue };
            if !work.spend(PER_PATH + nodes.len()) {
                break;
            }
            index.find(path, Use::Called).into_iter().for_each(|rule| findings.add(rule, line));
            G::inspect_call(&syntax, &Call { path, arguments: &arguments, nodes: &nodes, line, lines }, findings);
        }
    }
    if resolver.overflow.get() || work.is_spent() {
        findings.add_by_id(index, G::TOO_COMPLEX, lines.of(0));
    }
}
