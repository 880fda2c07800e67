//! Which names are bound in which scope, and to what.
//!
//! All bindings of a name in a scope count, in any order, because each of them may be the current
//! one. Order matters only for builtins: one is hidden if an unconditional binding precedes the
//! use.

use std::collections::{HashMap, HashSet};

use super::syntax::{Id, ScopeId, Syntax, WHOLE};

/// A step from a value to the bound part of it.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Member(String),
    /// One of its elements.
    Element,
    /// The result of a call.
    Made,
}

#[derive(Debug, Clone)]
pub(crate) enum Bound {
    Path(String),
    Value(Id, Vec<Step>),
    /// A function with its body.
    Function(Id),
    Unknown,
}

/// All bindings of a name in one scope.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    pub(crate) all: Vec<Bound>,
    /// The first node that binds the name unconditionally.
    pub(crate) sure: Option<Id>,
}

/// Maximum number of modules from which all names are imported; only those that some rule knows are
/// counted.
const MAX_STARS: usize = 12;

#[derive(Debug, Default)]
pub(crate) struct Scopes {
    /// By scope number.
    names: Vec<HashMap<String, Bindings>>,
    /// Members of `self`, `cls` or `this`, without distinction between classes.
    own: HashMap<String, Vec<Bound>>,
    /// The values that each function returns.
    returned: HashMap<Id, Vec<Id>>,
    /// Names that a scope declares as those of the whole text (`global`).
    shared: HashSet<(ScopeId, String)>,
    unbound: HashSet<String>,
    /// Nodes that are not expressions.
    marked: HashSet<Id>,
    stars: Vec<String>,
    /// True if a limit was exceeded.
    pub(crate) overflow: bool,
}

impl Scopes {
    pub(crate) fn bind(&mut self, syntax: &Syntax<'_>, scope: ScopeId, name: &str, bound: Bound, at: Id) {
        let key = (scope, name.to_owned());
        let ScopeId(place) = if self.shared.contains(&key) { WHOLE } else { scope };
        let place = place as usize;
        if self.names.len() <= place {
            self.names.resize_with(place + 1, HashMap::new);
        }
        let known = self.names[place].entry(key.1).or_default();
        known.all.push(bound);
        if !syntax.node(at).conditional {
            known.sure = Some(known.sure.map_or(at, |sure| sure.min(at)));
        }
    }

    pub(crate) fn bind_own(&mut self, name: &str, bound: Bound) {
        self.own.entry(name.to_owned()).or_default().push(bound);
    }

    pub(crate) fn returns(&mut self, function: Id, value: Id) {
        self.returned.entry(function).or_default().push(value);
    }

    pub(crate) fn share(&mut self, scope: ScopeId, name: &str) {
        self.shared.insert((scope, name.to_owned()));
    }

    pub(crate) fn unbind(&mut self, name: &str) {
        self.unbound.insert(name.to_owned());
    }

    pub(crate) fn mark(&mut self, id: Id) {
        self.marked.insert(id);
    }

    /// All names of a module are imported. `is_known` tells whether a rule is about the module.
    pub(crate) fn star(&mut self, module: &str, is_known: bool) {
        if !is_known || self.stars.iter().any(|known| known == module) {
            return;
        }
        match self.stars.len() < MAX_STARS {
            true => self.stars.push(module.to_owned()),
            false => self.overflow = true,
        }
    }

    pub(crate) fn stars(&self) -> &[String] {
        &self.stars
    }

    pub(crate) fn is_marked(&self, id: Id) -> bool {
        self.marked.contains(&id)
    }

    pub(crate) fn own(&self, name: &str) -> &[Bound] {
        self.own.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn returned(&self, function: Id) -> &[Id] {
        self.returned.get(&function).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn names(&self, scope: ScopeId, name: &str) -> Option<&Bindings> {
        self.names.get(scope.0 as usize)?.get(name)
    }

    pub(crate) fn is_unbound(&self, name: &str) -> bool {
        self.unbound.contains(name)
    }
}
