//! A syntax tree as a flat list of nodes, each with its scope.
//!
//! A node stores its parent, its first child and its next sibling. `order` has children before
//! their parents, so that the parts of a node are resolved before the node.

use std::ops::Range;

use tree_sitter::{Node as Parsed, Tree};

use crate::work::Work;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u32);

/// The number of a scope; the whole text is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ScopeId(pub(crate) u32);

/// Maximum number of nested blocks that are followed outwards.
const DEEPEST: usize = 100;
/// Work to add a node here and to call the functions that are called for every node.
const PER_NODE: usize = 10;

pub(crate) const WHOLE: ScopeId = ScopeId(0);

/// What a node opens for the nodes below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opens {
    Function,
    /// Names in it are not visible to functions in it.
    Class,
    Block,
    /// Code that may not run, or run several times.
    Condition,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Node<'a> {
    pub(crate) kind: &'a str,
    pub(crate) field: Option<&'a str>,
    pub(crate) parent: Option<Id>,
    first: Option<Id>,
    next: Option<Id>,
    range: Range<usize>,
    /// From 0.
    pub(crate) row: usize,
    pub(crate) scope: ScopeId,
    /// True if it is below a condition in its scope.
    pub(crate) conditional: bool,
}

#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) outer: Option<ScopeId>,
    pub(crate) opens: Opens,
    /// The node that opens it.
    node: Option<Id>,
}

#[derive(Debug)]
pub(crate) struct Syntax<'a> {
    text: &'a str,
    /// Code that iterates over nodes counts them.
    pub(crate) work: &'a Work,
    nodes: Vec<Node<'a>>,
    scopes: Vec<Scope>,
    /// Children before their parents.
    pub(crate) order: Vec<Id>,
    /// The row of the first syntax error, from 0.
    pub(crate) fault: Option<usize>,
}

struct Open {
    id: Id,
    last: Option<Id>,
    scope: ScopeId,
    conditional: bool,
}

impl<'a> Syntax<'a> {
    /// The list is incomplete if the work does not suffice for the tree.
    pub(crate) fn new(tree: &'a Tree, text: &'a str, work: &'a Work, opens: impl Fn(&str) -> Opens) -> Self {
        let scopes = vec![Scope { outer: None, opens: Opens::Function, node: None }];
        let mut syntax = Syntax { text, work, nodes: Vec::new(), scopes, order: Vec::new(), fault: None };
        let mut cursor = tree.walk();
        let mut path: Vec<Open> = Vec::new();
        loop {
            if !work.spend(PER_NODE) {
                return syntax;
            }
            let parsed = cursor.node();
            let entered = syntax.enter(parsed, cursor.field_name(), &mut path, &opens);
            if entered && cursor.goto_first_child() {
                continue;
            }
            if entered && let Some(open) = path.pop() {
                syntax.order.push(open.id);
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return syntax;
                }
                if let Some(open) = path.pop() {
                    syntax.order.push(open.id);
                }
            }
        }
    }

    /// True if the node was added, and with it an entry of `path`.
    fn enter(
        &mut self,
        parsed: Parsed<'a>,
        field: Option<&'a str>,
        path: &mut Vec<Open>,
        opens: &impl Fn(&str) -> Opens,
    ) -> bool {
        if (parsed.is_error() || parsed.is_missing()) && self.fault.is_none() {
            self.fault = Some(parsed.start_position().row);
        }
        if !parsed.is_named() && field.is_none() {
            return false;
        }
        let Ok(number) = u32::try_from(self.nodes.len()) else { return false };
        let id = Id(number);
        let (parent, scope, conditional) = match path.last_mut() {
            Some(open) => {
                match open.last.replace(id) {
                    Some(last) => self.nodes[last.0 as usize].next = Some(id),
                    None => self.nodes[open.id.0 as usize].first = Some(id),
                }
                (Some(open.id), open.scope, open.conditional)
            }
            None => (None, WHOLE, false),
        };
        let kind = parsed.kind();
        self.nodes.push(Node {
            kind,
            field,
            parent,
            first: None,
            next: None,
            range: parsed.byte_range(),
            row: parsed.start_position().row,
            scope,
            conditional,
        });
        let below = match opens(kind) {
            Opens::Nothing => (scope, conditional),
            Opens::Condition => (scope, true),
            opens @ (Opens::Function | Opens::Class | Opens::Block) => {
                let inner = ScopeId(u32::try_from(self.scopes.len()).unwrap_or(0));
                self.scopes.push(Scope { outer: Some(scope), opens, node: Some(id) });
                (inner, opens == Opens::Block && conditional)
            }
        };
        path.push(Open { id, last: None, scope: below.0, conditional: below.1 });
        true
    }

    pub(crate) fn node(&self, id: Id) -> &Node<'a> {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// All nodes in the order of the text.
    pub(crate) fn ids(&self) -> impl Iterator<Item = Id> + use<> {
        (0..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)).map(Id)
    }

    pub(crate) fn kind(&self, id: Id) -> &'a str {
        self.node(id).kind
    }

    pub(crate) fn text(&self, id: Id) -> &'a str {
        self.text.get(self.node(id).range.clone()).unwrap_or_default()
    }

    /// The children for which there is work left.
    pub(crate) fn children(&self, id: Id) -> impl Iterator<Item = Id> + '_ {
        let counted = |child: Option<Id>| child.filter(|_| self.work.spend(1));
        std::iter::successors(counted(self.node(id).first), move |child| counted(self.node(*child).next))
    }

    /// The children without comments, which may be anywhere.
    pub(crate) fn parts(&self, id: Id) -> Vec<Id> {
        self.children(id).filter(|child| self.kind(*child) != "comment").collect()
    }

    /// The operands of a chain of `+`, from the left. `operation` is the kind of a binary
    /// operation.
    pub(crate) fn summands(&self, id: Id, operation: &str) -> Vec<Id> {
        let mut summands = Vec::new();
        let mut at = id;
        // Each `field` call counts work and returns `None` without work left, so the loop ends.
        loop {
            let is_sum =
                self.kind(at) == operation && self.field(at, "operator").is_some_and(|sign| self.text(sign) == "+");
            match (is_sum, self.field(at, "left"), self.field(at, "right")) {
                (true, Some(left), Some(right)) => {
                    summands.push(right);
                    at = left;
                }
                _ => {
                    summands.push(at);
                    summands.reverse();
                    return summands;
                }
            }
        }
    }

    pub(crate) fn field(&self, id: Id, name: &str) -> Option<Id> {
        self.children(id).find(|child| self.node(*child).field == Some(name))
    }

    /// The row of a node's name: a chain of members may start many rows before.
    pub(crate) fn row_of_name(&self, id: Id) -> usize {
        let named = match self.kind(id) {
            "call" | "call_expression" => self.field(id, "function"),
            _ => Some(id),
        };
        let name = named.and_then(|id| match self.kind(id) {
            "attribute" => self.field(id, "attribute"),
            "member_expression" => self.field(id, "property"),
            _ => None,
        });
        self.node(name.unwrap_or(id)).row
    }

    pub(crate) fn scope_opens(&self, scope: ScopeId) -> Opens {
        self.scopes[scope.0 as usize].opens
    }

    pub(crate) fn outer(&self, scope: ScopeId) -> Option<ScopeId> {
        self.scopes[scope.0 as usize].outer
    }

    /// The function that contains a scope, or the whole text.
    pub(crate) fn function_of(&self, mut scope: ScopeId) -> ScopeId {
        for _ in 0..DEEPEST {
            match self.outer(scope) {
                Some(outer) if self.scope_opens(scope) == Opens::Block => scope = outer,
                _ => return scope,
            }
        }
        WHOLE
    }

    /// The function that contains a node.
    pub(crate) fn function_around(&self, id: Id) -> Option<Id> {
        let scope = self.function_of(self.node(id).scope);
        self.scopes[scope.0 as usize].node
    }
}
