//! Reading and writing of the formats that bytes come in: protobuf and JSON. A leaf: nothing here knows what the
//! messages mean.

pub(crate) mod varint;
pub(crate) mod view;
