//! The vocabulary of the files in [`kinds`](super::kinds), imported as a whole: it is the same for every kind.

pub(crate) use super::common::{
    annotations, created, deleted, generation, info, labels, owners, version,
};
pub(crate) use super::kind::Stability::{Alpha, Stable};
pub(crate) use super::kind::{
    Api, counter, deprecated, kind, namespace_and, namespace_and_uid, of_column, of_metadata,
    opt_in,
};
pub(crate) use super::kinds::condition::{self, Condition, DetailedCondition};
pub(crate) use super::kinds::resource_list::{self, ResourceList};
pub(crate) use super::metadata::{MetadataOnly, object};
pub(crate) use super::scalars::{QuantityText, Time};
pub(crate) use super::series::{Series, Value, bool_text, bool_value, number_text, or_empty};
pub(crate) use crate::wire::view::{Map, Present, Str};
