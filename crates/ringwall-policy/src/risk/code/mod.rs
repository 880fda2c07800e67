//! Trees of code and what the names in them mean, the same way for every language.
//!
//! A text becomes a tree within bounds (`parse`), the tree a flat list of nodes (`syntax`). Each language says what a node
//! is (`grammar`) and which names are bound where (`scopes`); from that follows what an expression can be (`value`,
//! `resolve`), and from that what the rules say of it (`inspect`).

pub(crate) mod arguments;
pub(crate) mod fold;
pub(crate) mod grammar;
pub(crate) mod inspect;
pub(crate) mod parse;
pub(crate) mod resolve;
pub(crate) mod scopes;
pub(crate) mod syntax;
pub(crate) mod value;
