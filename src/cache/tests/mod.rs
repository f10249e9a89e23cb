//! Support for the tests of this room.

pub(crate) mod inflated;

thread_local! {
    /// Each resource has Huffman codes of its own, however little text it has, so that small histories test these.
    pub static ANY_TEXT_HAS_CODES: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
