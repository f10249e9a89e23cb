//! Utilities that know nothing of Kubernetes, StatsD or HTTP.
//!
//! - [`allocator`] returns freed memory to the system when the process goes idle.
//! - [`memory_map`] parses the memory mappings of the process.
//! - [`program_pages`] unmaps the pages of the program that are not in use.
//! - [`descriptors`] divides the limit on open files between the users of connections.
//! - [`serial_blocking`] runs one blocking job at a time outside the async workers.
//! - [`recent_result`] shares one asynchronous job, and its result for a while.
//! - [`name_lookup`] resolves a name with at most one thread.
//! - [`redaction`] removes secrets from text and structured data.
//! - [`per_minute`] counts events by minute over the last hour.
//! - [`lock`] is a mutex that stays usable after a panic.
//! - [`log_limit`] limits log lines about something that can happen often.
//! - [`words`] declares enums with one text for each variant.
//! - [`shrink`] returns the memory of tables that have lost most of their entries.
//! - [`short_search`] searches and compares short texts.
//! - [`percent`] encodes and decodes parts of URLs.
//! - [`waiting`] waits for what may never come.
//! - [`wall_clock`] reads the time, which tests can simulate.
//! - [`work_counter`] counts the work that input causes, in tests and fuzz targets.
//! - [`jump_hash`] assigns hashes to buckets.
//! - [`hyper_log_log`] and [`misra_gries`] estimate distinct values and find frequent ones in bounded memory.

pub(crate) mod allocator;
pub(crate) mod descriptors;
pub(crate) mod hyper_log_log;
pub(crate) mod jump_hash;
pub(crate) mod lock;
pub(crate) mod log_limit;
pub(crate) mod memory_map;
pub(crate) mod misra_gries;
pub(crate) mod name_lookup;
pub(crate) mod per_minute;
pub(crate) mod percent;
pub(crate) mod program_pages;
pub(crate) mod reasons;
pub(crate) mod recent_result;
pub(crate) mod redaction;
pub(crate) mod serial_blocking;
pub(crate) mod short_search;
pub(crate) mod shrink;
pub(crate) mod waiting;
pub(crate) mod wall_clock;
pub(crate) mod words;
pub(crate) mod work_counter;
