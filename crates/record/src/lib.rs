//! THE MEMORY: the only room that knows SQL.
