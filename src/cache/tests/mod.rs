//! Support for the tests of this room.

pub(crate) mod inflated;
