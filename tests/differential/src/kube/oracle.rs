//! Random objects from the messages of the Kubernetes API, as in the tests of the decoders.

#[path = "../../../kubernetes/oracle/messages.rs"]
#[allow(dead_code, reason = "only the fields are read, nothing is encoded")]
pub mod messages;
#[path = "../../../kubernetes/oracle/random.rs"]
#[allow(dead_code, reason = "nothing is encoded or corrupted")]
pub mod random;
