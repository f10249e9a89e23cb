//! Following resources: lists and watches, kept going through whatever the API server and the network do.
//!
//! [`machine`] says what to ask next and [`watch`] does the asking; [`chunks`] and [`retries`] decide when an answer is
//! given up and when to ask again, [`turns`] how many lists are under way at once, [`quota`] how many objects are kept, [`budget`] which of them have series,
//! [`versions`] whether a server was set back, [`handover`] what is shown while a share changes; [`worker`] is the thread they all run on. [`reconcile`] brings what is followed in
//! line with a new configuration, kind by kind. Nothing here knows families or how text is served.

pub(crate) mod backoff;
pub(crate) mod budget;
pub(crate) mod chunks;
pub(crate) mod following;
pub(crate) mod handover;
pub(crate) mod intake;
pub(crate) mod journal;
mod labels;
pub(crate) mod left_out;
pub(crate) mod machine;
pub(crate) mod progress;
pub(crate) mod quota;
pub(crate) mod reconcile;
pub(crate) mod retries;
pub(crate) mod turns;
pub(crate) mod versions;
pub(crate) mod watch;
pub(crate) mod worker;
