//! Who Sortie is towards a tool's server, and by which way it gets there.

mod certificates;
mod headers;
mod proxy;
mod tokens;
