//! The wire formats, protobuf and JSON. A leaf module: nothing here knows the meaning of a message.

pub(crate) mod json;
pub(crate) mod varint;
pub(crate) mod view;
