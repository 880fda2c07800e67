//! Analysis of code that is the same for every language.
//!
//! `parse` turns text into a tree within limits, `syntax` the tree into a flat list of nodes. Each
//! language describes its nodes (`grammar`) and the names that they bind (`scopes`). `resolve`
//! finds the possible values of an expression (`value`), and `inspect` matches them with the rules.

pub(crate) mod arguments;
pub(crate) mod fold;
pub(crate) mod grammar;
pub(crate) mod inspect;
pub(crate) mod parse;
pub(crate) mod resolve;
pub(crate) mod scopes;
pub(crate) mod syntax;
pub(crate) mod value;
