//! The user's selection of families ([`filter`]) and of labels and annotations ([`selection`]).

pub mod filter;
pub mod selection;
