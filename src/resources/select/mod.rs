//! What a user wants of the kinds: which families ([`filter`]), which labels and annotations ([`selection`]).

pub mod filter;
pub mod selection;
