//! Support for the tests of this room.

pub(super) mod inflated;
